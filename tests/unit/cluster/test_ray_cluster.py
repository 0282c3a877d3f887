"""Objects in Ray actors: calls, errors, logs, ends; with a real Ray on this machine."""

import asyncio
import functools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import support
from strop.cluster.ray.answers import RemoteError
from strop.cluster.ray.cluster import RayCluster, RemoteObject, Role, RoleDied
from strop.config.cluster import ClusterConfig
from strop.errors import ConfigError
from support.ray_objects import Counter, refusing

pytest.importorskip("ray", reason="needs the extra `ray`")


TESTS = str(Path(support.__path__[0]).parent)


def role(name: str, start: int = 0, **changes: object) -> Role:
    return Role(name, functools.partial(Counter, start), "trainer", cores=1, **changes)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def cluster(logs: Path) -> Iterator[RayCluster]:
    settings = ClusterConfig(type="ray", environment={"trainer": {"OWN_VARIABLE": "mine", "PYTHONPATH": TESTS}})
    with RayCluster(settings, logs) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def counters(cluster: RayCluster) -> list[RemoteObject]:
    return cluster.host_all([role("first", 5), role("second", 7)])


def test_calls_reach_the_object_of_their_name(cluster: RayCluster, counters: list[RemoteObject]) -> None:
    async def both() -> list[int]:
        return list(await asyncio.gather(*(one.call("add", 1) for one in counters)))

    assert cluster.run(both()) == [6, 8]


def test_plain_methods_run_one_at_a_time_while_coroutines_go_on(
    cluster: RayCluster, counters: list[RemoteObject]
) -> None:
    one = counters[0]

    async def mixed() -> tuple[float, list[int]]:
        slow = asyncio.gather(one.call("add", 10, seconds=4), one.call("add", 20), one.call("add", 30))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        assert await one.call("wait", 0.01) == "waited"
        waited = time.monotonic() - started
        await slow
        return waited, await one.call("calls")

    waited, order = cluster.run(mixed())
    assert waited < 2
    assert sorted(order[-3:]) == [10, 20, 30]


def test_an_error_comes_back_as_what_it_was_raised_as(cluster: RayCluster, counters: list[RemoteObject]) -> None:
    with pytest.raises(ConfigError, match="it must be 1, got 2") as caught:
        cluster.run(counters[0].call("refuse"))
    assert caught.value.remedy == "Set it to 1."
    assert "It was raised in first:" in caught.value.__notes__[0]
    assert "ray_objects.py" in caught.value.__notes__[0]


def test_an_error_that_cannot_travel_is_told(cluster: RayCluster, counters: list[RemoteObject]) -> None:
    with pytest.raises(RemoteError, match=r"first failed: TooManySkippedUpdates: .*got 3 updates in a row"):
        cluster.run(counters[0].call("skip_too_often"))


def test_each_kind_of_role_has_its_environment_and_its_own_log(
    cluster: RayCluster, counters: list[RemoteObject], logs: Path
) -> None:
    assert cluster.run(counters[1].call("variable", "OWN_VARIABLE")) == "mine"
    assert "a counter begins at 5" in (logs / "first.log").read_text()
    assert "a counter begins at 7" in (logs / "second.log").read_text()


def test_a_factory_that_refuses_says_so_here(cluster: RayCluster) -> None:
    with pytest.raises(ConfigError, match="a counter must have a start, got none"):
        cluster.host_all([Role("third", refusing, "trainer", cores=1)])


def test_a_role_that_died_is_named_at_once(cluster: RayCluster) -> None:
    (one,) = cluster.host_all([role("mortal")])
    started = time.monotonic()
    with pytest.raises(RoleDied, match="mortal must answer, its process has ended"):
        cluster.run(one.call("die"))
    with pytest.raises(RoleDied, match="mortal"):
        cluster.run(one.call("add", 1))
    assert time.monotonic() - started < 20


def test_more_than_the_cluster_has_is_refused_before_anything_starts(cluster: RayCluster) -> None:
    many = [Role(f"big-{index}", Counter, "trainer", cores=1000) for index in range(2)]
    with pytest.raises(
        ConfigError, match=r"must have 1000 cores and 0 devices .*big-0 1000 cores, big-1.*got \d+ cores"
    ):
        cluster.host_all(many)
    with pytest.raises(ConfigError, match="must have 1 cores and 1 devices"):
        cluster.host_all([role("device", devices=1)])
    assert "big-0" not in cluster.names
