"""The publisher: brings a version of the weights to every replica and proves that it arrived.

    IDLE --> HOLDING    shut the gate, interrupt requests inside (they come back aborted), wake and pause the engines
         --> UPDATING   stream the weights, drop caches, compare the books, resume the engines
         --> PROVING    probe every replica; the gate is still shut, so nothing else is sampled
         --> PUBLISHED  the version counts, the gate opens            (--> HOLDING at the next publication)

Whatever goes wrong on the way leads to FAILED, which is final: the gate refuses every request, `version` is
still the last one that was proven, and the error names the replica. Every wait has a bound. Each replica then holds
the old or the new weights whole, or refuses to sample.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from strop.errors import SyncError
from strop.metrics import Metrics, total
from strop.protocols import RequestGate, WeightTransfer
from strop.records import WeightReceipt
from strop.transfer import DeliveryError, discrepancies
from strop.weight_sync.canary import canary_scale, require_moved, require_moved_back
from strop.weight_sync.probe import SamplerReading
from strop.weight_sync.proof import Replica, ReplicaReport, WeightProof, metrics_of

_MAX_LINES = 5
_Answer = TypeVar("_Answer")


class SyncState(StrEnum):
    """Where a publication stands."""

    IDLE = "idle"
    HOLDING = "holding"
    UPDATING = "updating"
    PROVING = "proving"
    PUBLISHED = "published"
    FAILED = "failed"


_NEXT = {
    SyncState.IDLE: {SyncState.HOLDING},
    SyncState.HOLDING: {SyncState.UPDATING},
    SyncState.UPDATING: {SyncState.PROVING},
    SyncState.PROVING: {SyncState.PUBLISHED, SyncState.UPDATING},
    SyncState.PUBLISHED: {SyncState.HOLDING},
    SyncState.FAILED: set(),
}


@dataclass
class _Clock:
    """Seconds spent in the proof, the rest being publication."""

    started: float
    proof_seconds: float = 0.0

    @property
    def metrics(self) -> Metrics:
        publish_seconds = time.perf_counter() - self.started - self.proof_seconds
        return {
            "timing/publish_seconds": total(publish_seconds, "s"),
            "timing/proof_seconds": total(self.proof_seconds, "s"),
        }


class MemoryTurns(Protocol):
    """Makes room on a device that trainer and samplers share; a `HandOver` is one."""

    async def to_weights(self) -> None:
        """Makes room for the samplers' weights, and maps them."""

    async def to_cache(self) -> None:
        """Makes room for the samplers' caches, and maps them; does nothing where they are."""

    async def give_up(self) -> None:
        """Leaves nobody half awake after a failure."""

    def take_metrics(self) -> Metrics:
        """What was measured since the last call."""


class Publisher:
    """Owns the state of publication; one publication runs at a time."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        transfer: WeightTransfer,
        proof: WeightProof,
        gate: RequestGate,
        *,
        turns: MemoryTurns | None = None,
        timeout_seconds: float = 600.0,
    ) -> None:
        """Takes the parts together; nothing is sent before `start`.

        Args:
            replicas: the samplers, each with a name of its own.
            transfer: how the trainer's weights travel; their chunks must carry the version that is published.
            proof: the probe and what was proven.
            gate: the door in front of all samplers.
            turns: where trainer and samplers share devices; None wakes samplers in one piece.
            timeout_seconds: bound of every single wait for a sampler.
        """
        names = [replica.name for replica in replicas]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"there must be at least one replica and each must have its own name, got {names}")
        self._replicas = tuple(replicas)
        self._transfer = transfer
        self._proof = proof
        self._gate = gate
        self._turns = turns
        self._timeout_seconds = timeout_seconds
        self._state = SyncState.IDLE
        self._version: int | None = None
        self._clock = _Clock(time.perf_counter())

    @property
    def state(self) -> SyncState:
        """Where the publication stands."""
        return self._state

    @property
    def version(self) -> int | None:
        """The version that was proven last; None before the first."""
        return self._version

    def leave_out(self, name: str) -> None:
        """Publishes to a replica no more: its process is gone. Raises SyncError where none would be left."""
        left = tuple(replica for replica in self._replicas if replica.name != name)
        if not left:
            raise SyncError(f"weights must have a sampler to go to, the last one is gone: {name}")
        self._replicas = left

    async def start(self, version: int, *, canary: bool = True) -> Metrics:
        """Publishes the run's first weights, and shows that every replica follows.

        With `canary`, a visible perturbation is sent and taken back: every replica must move, and move back.
        Raises SyncError naming the replica.
        """

        async def first() -> list[ReplicaReport]:
            await self._update(version)
            return await (self._prove_with_canary(version) if canary else self._prove())

        return await self._run(version, first)

    async def publish(self, version: int) -> Metrics:
        """Brings the trainer's weights to every replica and proves it. Raises SyncError naming the replica."""

        async def update_and_prove() -> list[ReplicaReport]:
            await self._update(version)
            return await self._prove()

        return await self._run(version, update_and_prove)

    async def admit(self, replica: Replica) -> Metrics:
        """Brings the proven version to a replica that was started anew, proves it, and publishes to it from then on.

        The trainer must still hold that version. Other replicas go on sampling meanwhile; the new one must not be
        asked for anything before this returns. Raises SyncError where it cannot be proven; the others stay.
        """
        version, others = self._version, tuple(one for one in self._replicas if one.name != replica.name)
        if version is None or self._state is not SyncState.PUBLISHED:
            raise SyncError(f"a replica can be admitted between two publications, got {self._state}")
        self._clock = _Clock(time.perf_counter())
        self._enter(SyncState.HOLDING)
        self._replicas = (replica,)
        is_proven = False
        try:
            await self._each(lambda one: one.engine.wake())
            await self._each(lambda one: one.engine.pause())
            await self._update(version)
            reports = await self._prove()
            is_proven = True
        finally:
            self._state = SyncState.PUBLISHED
            self._replicas = (*others, replica) if is_proven else others
        return metrics_of(reports) | self._clock.metrics

    # ----------------------------------------------------------------------------------------- order

    async def _run(self, version: int, work: Callable[[], Awaitable[list[ReplicaReport]]]) -> Metrics:
        self._clock = _Clock(time.perf_counter())
        self._enter(SyncState.HOLDING)
        try:
            await self._hold()
            reports = await work()
        except BaseException as error:
            self._fail(error)
            if self._turns is not None:
                await self._turns.give_up()
            raise
        self._enter(SyncState.PUBLISHED)
        self._version = version
        self._gate.release()
        measured = {} if self._turns is None else self._turns.take_metrics()
        return metrics_of(reports) | self._clock.metrics | measured

    async def _hold(self) -> None:
        self._gate.shut()
        await self._each(lambda replica: replica.engine.interrupt())
        try:
            await self._gate.emptied(self._timeout_seconds)
        except TimeoutError as error:
            raise SyncError(f"weights cannot be published: {error}") from error
        if self._turns is None:
            await self._each(lambda replica: replica.engine.wake())
        else:
            await self._bounded(self._turns.to_weights())
        await self._each(lambda replica: replica.engine.pause())

    async def _update(self, version: int, *, scale: float = 1.0) -> None:
        self._enter(SyncState.UPDATING)
        books = await self._send(version, scale)
        for name, (sent, received) in books.items():
            lines = discrepancies(sent, received)
            if lines:
                more = f" and {len(lines) - _MAX_LINES} more" if len(lines) > _MAX_LINES else ""
                raise SyncError(f"{name} does not hold what was sent: {'; '.join(lines[:_MAX_LINES])}{more}")
        if self._turns is not None:
            await self._bounded(self._turns.to_cache())
        await self._each(lambda replica: replica.engine.resume())

    async def _bounded(self, work: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(work, self._timeout_seconds)
        except TimeoutError as error:
            raise SyncError(
                f"memory must change hands within {self._timeout_seconds:g} s while {self._state}, it did not"
            ) from error

    async def _send(self, version: int, scale: float) -> dict[str, tuple[WeightReceipt, WeightReceipt]]:
        engines = {replica.name: replica.engine for replica in self._replicas}
        try:
            return await asyncio.wait_for(self._transfer.send(engines, version, scale=scale), self._timeout_seconds)
        except DeliveryError as error:
            raise self._failure(error.failures) from error
        except TimeoutError as error:
            raise self._failure(dict.fromkeys(engines, error)) from error

    async def _prove(self) -> list[ReplicaReport]:
        started = await self._enter_proof()
        reports = self._judge(await self._readings())
        if self._proof.is_outworn(reports):
            self._proof.forget()
            await self._each(lambda replica: self._proof.prepare(replica.engine), self._replicas[:1])
            self._judge(await self._readings())
        self._clock.proof_seconds += time.perf_counter() - started
        return reports

    async def _prove_with_canary(self, version: int) -> list[ReplicaReport]:
        started = await self._enter_proof()
        before = await self._readings()
        reports = self._judge(before)
        await self._update(version, scale=canary_scale(self._proof.bound))
        self._enter(SyncState.PROVING)
        require_moved(before, await self._readings(), self._proof.bound)
        await self._update(version)
        self._enter(SyncState.PROVING)
        after = await self._readings()
        require_moved_back(before, after, self._proof.bound)
        self._judge(after)
        self._clock.proof_seconds += time.perf_counter() - started
        return reports

    # ----------------------------------------------------------------------------------------- proof

    async def _readings(self) -> dict[str, SamplerReading]:
        return await self._each(self._proof.read)

    def _judge(self, readings: Mapping[str, SamplerReading]) -> list[ReplicaReport]:
        reports = self._proof.judge(readings)
        failures = [report.failure for report in reports if report.failure is not None]
        if failures:
            raise SyncError(
                f"the proof of weight sync failed, the sampler does not compute with the published weights. "
                f"{'. '.join(failures)}",
                "docs/weight_sync.md says what each failure looks like.",
            )
        return reports

    # ----------------------------------------------------------------------------------------- state

    def _enter(self, state: SyncState) -> None:
        if state not in _NEXT[self._state]:
            raise SyncError(f"weights can be {state} after {sorted(_sources(state))}, got {self._state}")
        self._state = state

    async def _enter_proof(self) -> float:
        self._enter(SyncState.PROVING)
        started = time.perf_counter()
        await self._each(lambda replica: self._proof.prepare(replica.engine), self._replicas[:1])
        return started

    def _fail(self, error: BaseException) -> None:
        self._state = SyncState.FAILED
        self._gate.refuse(SyncError(f"no request is served any more: a weight publication failed: {error}"))

    async def _each(
        self, call: Callable[[Replica], Awaitable[_Answer]], replicas: Sequence[Replica] | None = None
    ) -> dict[str, _Answer]:
        """Calls replicas (all by default) at once and waits for all; raises SyncError naming those that failed."""
        called = self._replicas if replicas is None else replicas
        bounded = (asyncio.wait_for(call(replica), self._timeout_seconds) for replica in called)
        outcomes = await asyncio.gather(*bounded, return_exceptions=True)
        answers: dict[str, _Answer] = {}
        failures: dict[str, BaseException] = {}
        for replica, outcome in zip(called, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                failures[replica.name] = outcome
            else:
                answers[replica.name] = outcome
        if failures:
            raise self._failure(failures) from next(iter(failures.values()))
        return answers

    def _failure(self, failures: Mapping[str, BaseException]) -> SyncError:
        told = "; ".join(f"{name}: {self._explain(error)}" for name, error in failures.items())
        return SyncError(f"weights cannot be published, a sampler failed while {self._state}: {told}")

    def _explain(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_seconds:g} s"
        return f"{type(error).__name__}: {error}"


def _sources(state: SyncState) -> list[str]:
    return [source.value for source, targets in _NEXT.items() if state in targets]
