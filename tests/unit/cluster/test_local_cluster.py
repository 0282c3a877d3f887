"""One loop for the cluster's whole life, in a script and in a notebook, and never a hang."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from strop.cluster import LocalCluster, StallError


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


def from_a_notebook(cluster: LocalCluster, *coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
    """Calls `run` while another loop runs in this thread, one that leaves Ctrl-C alone as a notebook's does."""

    async def cell() -> list[Any]:
        return [cluster.run(coroutine) for coroutine in coroutines]

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


def test_a_coroutine_runs_in_the_caller_s_thread_and_returns_its_result() -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    with LocalCluster() as cluster:
        assert cluster.run(answer(3)) == 3
        assert cluster.run(where()) is threading.current_thread()


def test_inside_a_running_loop_it_works_too() -> None:
    with LocalCluster() as cluster:
        assert from_a_notebook(cluster, answer(1), answer(2)) == [1, 2]


def test_tasks_and_locks_live_on_from_call_to_call_whoever_turns_the_loop() -> None:
    events: list[str] = []

    class Engine:
        def __init__(self) -> None:
            self.wake = asyncio.Event()

        async def start(self) -> None:
            self.task = asyncio.create_task(self.work())

        async def work(self) -> None:
            await self.wake.wait()
            events.append("worked")

        async def finish(self) -> None:
            self.wake.set()
            await self.task

    with LocalCluster() as cluster:
        engine = cluster.host("engine", Engine)
        cluster.run(engine.start())
        assert events == []
        from_a_notebook(cluster, engine.finish())
        assert events == ["worked"]


def test_nothing_turns_between_two_calls() -> None:
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def start() -> None:
        asyncio.get_running_loop().ticker = asyncio.create_task(tick())  # type: ignore[attr-defined]

    with LocalCluster() as cluster:
        cluster.run(start())
        before = len(ticks)
        time.sleep(0.02)
        assert len(ticks) == before


@pytest.mark.parametrize("inside", [False, True])
def test_an_error_reaches_the_caller_and_the_cluster_lives_on(inside: bool) -> None:
    async def fail() -> None:
        raise LookupError("here")

    with LocalCluster() as cluster:
        with pytest.raises(LookupError, match="here"):
            from_a_notebook(cluster, fail()) if inside else cluster.run(fail())
        assert cluster.run(answer(1)) == 1


def test_a_stall_is_ended_and_says_who_waits_where() -> None:
    async def stuck_forever() -> None:
        await asyncio.Event().wait()

    with LocalCluster() as cluster:
        with pytest.raises(StallError, match=r"(?s)within 0.05 s.*stuck_forever .*test_local_cluster.py:\d+"):
            cluster.run(stuck_forever(), timeout_seconds=0.05)
        assert cluster.run(answer(1), timeout_seconds=1) == 1


def test_ctrl_c_inside_a_notebook_cancels_the_work_and_the_cluster_lives_on() -> None:
    ended: list[str] = []

    async def wait_for_ctrl_c() -> None:
        try:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    with LocalCluster() as cluster:
        with pytest.raises(KeyboardInterrupt):
            from_a_notebook(cluster, wait_for_ctrl_c())
        assert ended == ["cancelled"]
        assert cluster.run(answer(1)) == 1


def test_close_cancels_what_still_runs() -> None:
    ended: list[str] = []

    async def start() -> asyncio.Task[None]:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cleaned up")

        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        return task

    cluster = LocalCluster()
    task = cluster.run(start())
    cluster.close()
    assert ended == ["cleaned up"]
    assert task.cancelled()


@pytest.mark.parametrize("inside", [False, True])
def test_close_is_bounded_when_a_task_refuses_to_end(caplog: pytest.LogCaptureFixture, inside: bool) -> None:
    async def start() -> asyncio.Task[None]:
        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    continue

        task = asyncio.create_task(stubborn(), name="stubborn task")
        await asyncio.sleep(0)
        return task

    cluster = LocalCluster(close_timeout_seconds=0.05)
    task = cluster.run(start())
    began = time.monotonic()

    async def close() -> None:
        cluster.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(close()) if inside else cluster.close()
    assert time.monotonic() - began < 2
    assert "stubborn task waits in" in caplog.text
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_closed_cluster_says_so_and_may_be_closed_again() -> None:
    cluster = LocalCluster()
    cluster.close()
    cluster.close()
    with pytest.raises(RuntimeError, match="it was closed"):
        cluster.run(answer(1))
    with pytest.raises(RuntimeError, match="it was closed"):
        cluster.host("late", object)


def test_hosted_objects_have_names_of_their_own() -> None:
    with LocalCluster() as cluster:
        cluster.host("policy", object)
        cluster.host("sampler", object)
        assert cluster.names == ("policy", "sampler")
        with pytest.raises(ValueError, match="'policy' twice"):
            cluster.host("policy", object)
