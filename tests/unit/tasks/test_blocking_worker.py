"""The worker of blocking calls: one at a time, each within its limit, and a thread left behind stays behind."""

import asyncio
import threading
import time

import pytest

from strop.tasks.worker import BlockingWorker


def test_results_and_exceptions_come_back() -> None:
    worker = BlockingWorker("mine", timeout_seconds=5)
    assert asyncio.run(worker.run(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        asyncio.run(worker.run(lambda: 1 / 0))


def test_an_exception_that_ends_iterations_comes_back_too() -> None:
    worker = BlockingWorker("mine", timeout_seconds=5)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(worker.run(lambda: next(iter(()))))


def test_a_thread_that_was_left_behind_serves_no_more_calls() -> None:
    worker = BlockingWorker("mine", timeout_seconds=0.4)
    released, ended = threading.Event(), threading.Event()

    def stuck() -> None:
        released.wait(10)
        ended.set()

    async def run() -> set[int]:
        with pytest.raises(TimeoutError, match=r"mine must return within 0\.4 seconds"):
            await worker.run(stuck)
        released.set()
        ended.wait(10)
        threads: set[int] = set()

        def call() -> None:
            threads.add(threading.get_ident())
            time.sleep(0.01)

        await asyncio.gather(*(worker.run(call) for _ in range(8)))
        return threads

    assert len(asyncio.run(run())) == 1


def test_the_time_limit_counts_from_the_start_of_a_call() -> None:
    worker = BlockingWorker("mine", timeout_seconds=0.6)

    async def run() -> None:
        await asyncio.gather(*(worker.run(lambda: time.sleep(0.1)) for _ in range(8)))

    asyncio.run(run())


def test_a_call_that_nobody_waits_for_any_more_is_not_started() -> None:
    worker = BlockingWorker("mine", timeout_seconds=5)
    started: list[str] = []

    async def run() -> None:
        first = asyncio.ensure_future(worker.run(lambda: time.sleep(0.1)))
        second = asyncio.ensure_future(worker.run(lambda: started.append("second")))
        await asyncio.sleep(0.02)
        second.cancel()
        await first
        await worker.run(lambda: started.append("third"))

    asyncio.run(run())
    assert started == ["third"]
