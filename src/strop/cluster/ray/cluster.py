"""A Ray cluster: started here or found, with named actors that host objects, all ended in bounded time.

check what is there --> start actors, all at once --> make their objects --> calls --> kill actors, leave Ray
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from strop.cluster.local import LocalCluster
from strop.cluster.ray.actor import Host
from strop.cluster.ray.answers import Answer, RemoteError
from strop.config.cluster import ClusterConfig
from strop.errors import ConfigError, StropError

_Result = TypeVar("_Result")
REACH_SECONDS = 10.0
"""How long the head of a Ray cluster may take to accept a connection."""


class RoleDied(StropError):  # noqa: N818 - reads as what happened
    """The process of a role ended while something was asked of it."""

    exit_code = 3

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name} must answer, its process has ended: {why}",
            "Its log is in the run folder, under logs/. Go on with --resume.",
        )
        self.name = name


@dataclass(frozen=True)
class Role:
    """One object to host: its name, how it is made, and what it needs."""

    name: str
    factory: Callable[[], Any]
    """Picklable: a function of a module, or a `functools.partial` of one."""
    kind: str
    """trainer or sampler: whose environment it gets."""
    cores: int
    devices: int = 0
    device_name: str = "GPU"
    """What Ray calls them: GPU or NPU."""
    environment: Mapping[str, str] = field(default_factory=dict)


class RemoteObject:
    """An object in another process; calls are awaited and raise what it raises."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self._actor = actor

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method. Raises RoleDied where the process has ended."""
        return await self._result(self._actor.call.remote(method, args, kwargs))

    async def make(self, factory: Callable[[], Any]) -> None:
        """Makes the object in its process."""
        await self._result(self._actor.make.remote(factory))

    async def node(self) -> tuple[str, int]:
        """The host name and process id."""
        place: tuple[str, int] = await _bounded_by_life(self.name, self._actor.node.remote())
        return place

    def begin(self, method: str, *args: Any) -> "Call":
        """Starts a call that `wait_for_all` waits for, without any event loop."""
        return Call(self.name, self._actor.call.remote(method, args, {}))

    async def _result(self, reference: Any) -> Any:
        answer: Answer = await _bounded_by_life(self.name, reference)
        if answer.failure is not None:
            raise answer.failure.raised_by(self.name)
        return answer.result


@dataclass(frozen=True)
class Call:
    """A call under way."""

    name: str
    reference: Any


def wait_for_all(calls: Sequence[Call]) -> list[Any]:
    """Waits for calls to end, the calling thread standing still, and returns their results in order.

    The first that fails ends the wait: the others may wait for it in a collective. Raises what it raised, and RoleDied
    where its process has ended.
    """
    import ray

    open_calls = {call.reference: call for call in calls}
    results: dict[Any, Any] = {}
    while open_calls:
        done, _ = ray.wait(list(open_calls), num_returns=1)
        call = open_calls.pop(done[0])
        with _told_of(call.name):
            answer: Answer = ray.get(call.reference)
        if answer.failure is not None:
            raise answer.failure.raised_by(call.name)
        results[call.reference] = answer.result
    return [results[call.reference] for call in calls]


async def _bounded_by_life(name: str, reference: Any) -> Any:
    with _told_of(name):
        return await reference


@contextmanager
def _told_of(name: str) -> Iterator[None]:
    """Turns Ray's errors into ours, which name the role."""
    from ray.exceptions import RayActorError, RayError

    try:
        yield
    except RayActorError as error:
        raise RoleDied(name, str(error).strip().splitlines()[0]) from error
    except RayError as error:
        raise RemoteError(f"what was asked of {name} did not reach it: {error}") from error


class RayCluster(AbstractContextManager["RayCluster"]):
    """Hosts objects in Ray actors and owns the event loop of the controller."""

    def __init__(self, settings: ClusterConfig, log_folder: Path | None) -> None:
        """Connects, or starts Ray on this machine.

        Raises ConfigError where the address cannot be reached within `start_timeout_seconds`.
        """
        self.settings = settings
        self._log_folder = log_folder
        self._loop = LocalCluster()
        self._objects: dict[str, RemoteObject] = {}
        self._owns_ray = _connect(settings)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is hosted, in order."""
        return tuple(self._objects)

    def run(self, coroutine: Coroutine[Any, Any, _Result], *, timeout_seconds: float | None = None) -> _Result:
        """Runs a coroutine of the controller to its end, as `LocalCluster.run` does."""
        return self._loop.run(coroutine, timeout_seconds=timeout_seconds)

    def host_all(self, roles: Sequence[Role]) -> list[RemoteObject]:
        """Starts the process of every role at once, then makes their objects at once; returns them in order.

        Raises ConfigError, before anything is started, where the cluster has too little, and what a factory raises.
        """
        _check_fit(roles, self.settings)
        objects = [RemoteObject(role.name, self._start(role)) for role in roles]
        self._objects |= {one.name: one for one in objects}
        self.run(_all_alive(objects), timeout_seconds=self.settings.start_timeout_seconds)
        self.run(_make_all(objects, roles))
        return objects

    def _start(self, role: Role) -> Any:
        import ray

        variables = {**self.settings.environment.get(role.kind, {}), **role.environment}
        log_file = None if self._log_folder is None else str(self._log_folder / f"{role.name}.log")
        is_shared = self.settings.placement == "shared"
        actor = ray.remote(Host).options(
            name=None,
            num_cpus=0 if is_shared else role.cores,
            **_devices_of(role, is_shared=is_shared),
            max_concurrency=1000,
            max_restarts=0,
            runtime_env={"env_vars": variables} if variables else None,
        )
        return actor.remote(role.name, log_file)

    def kill(self, name: str) -> None:
        """Ends the process of a role at once."""
        import ray

        ray.kill(self._objects[name]._actor, no_restart=True)

    def close(self) -> None:
        """Ends every role's process and leaves Ray, which ends too where it was started here; bounded in time."""
        import ray

        for one in self._objects.values():
            ray.kill(one._actor, no_restart=True)
        self._objects.clear()
        self._loop.close()
        if self._owns_ray:
            ray.shutdown()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _devices_of(role: Role, *, is_shared: bool) -> dict[str, Any]:
    """The options of an actor that needs accelerators; shared, a trainer and a sampler have one together."""
    if not role.devices:
        return {}
    count = 0.5 if is_shared else role.devices
    return {"num_gpus": count} if role.device_name == "GPU" else {"resources": {role.device_name: count}}


async def _all_alive(objects: Sequence[RemoteObject]) -> None:
    await asyncio.gather(*(one.node() for one in objects))


async def _make_all(objects: Sequence[RemoteObject], roles: Sequence[Role]) -> None:
    await asyncio.gather(*(one.make(role.factory) for one, role in zip(objects, roles, strict=True)))


def _connect(settings: ClusterConfig) -> bool:
    """Joins Ray where it is, or starts it; returns whether it must be ended here."""
    import ray

    if ray.is_initialized():
        return False
    try:
        _require_reachable(settings.address)
        ray.init(
            address=settings.address,
            include_dashboard=False if settings.address is None else None,
            log_to_driver=False,
            configure_logging=True,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"cluster.address must be that of a Ray cluster that runs, got {settings.address!r}: {error}",
            "Start one with `ray start --head`, or leave cluster.address out to have one started here.",
        ) from error
    return True


def _require_reachable(address: str | None) -> None:
    """Raises OSError where nobody listens at `host:port`: Ray itself would try for minutes."""
    host, separator, port = (address or "").rpartition(":")
    if separator and port.isdigit():
        socket.create_connection((host, int(port)), REACH_SECONDS).close()


def _check_fit(roles: Sequence[Role], settings: ClusterConfig) -> None:
    """Refuses roles that the cluster cannot hold at the same time: says what is needed, found, and would fit."""
    import ray

    found = ray.cluster_resources()  # type: ignore[no-untyped-call]
    names = {role.device_name for role in roles}
    cores, devices = int(found.get("CPU", 0)), sum(int(found.get(name, 0)) for name in names)
    if settings.placement == "shared":
        needed_cores = max((role.cores for role in roles), default=0)
        needed_devices = max((role.devices for role in roles), default=0)
    else:
        needed_cores, needed_devices = sum(role.cores for role in roles), sum(role.devices for role in roles)
    if needed_cores <= cores and needed_devices <= devices:
        return
    told = ", ".join(
        f"{role.name} {role.cores} cores" + (f" {role.devices} devices" * bool(role.devices)) for role in roles
    )
    raise ConfigError(
        f"the cluster must have {needed_cores} cores and {needed_devices} devices for these roles ({told}; "
        f"cluster.placement is {settings.placement}), got {cores} cores and {devices} devices",
        'Lower cluster.trainers, rollout.replicas or the cores of a role, or set cluster.placement to "shared".',
    )
