"""The first Ctrl-C asks a run to stop, the second stops it at once."""

import asyncio
import os
import signal
import threading

import pytest

from strop.cluster import LocalCluster, StopFlag, stop_on_interrupt, unless_stopped


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_sets_the_flag_and_says_what_happens(capfd: pytest.CaptureFixture[str]) -> None:
    with stop_on_interrupt() as flag:
        assert not flag.is_set
        press_ctrl_c()
        assert flag.is_set
    assert "Ctrl-C again stops at once" in capfd.readouterr().err


def test_the_second_stops_at_once() -> None:
    with stop_on_interrupt():
        press_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()


def test_the_handler_of_before_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_running_coroutine_goes_on_after_the_first_and_ends_at_the_second() -> None:
    seen: list[bool] = []

    async def phase(flag: StopFlag) -> None:
        press_ctrl_c()
        await asyncio.sleep(0)
        seen.append(flag.is_set)
        press_ctrl_c()
        await asyncio.sleep(60)

    cluster = LocalCluster(close_timeout_seconds=1)
    with stop_on_interrupt() as flag, pytest.raises(KeyboardInterrupt):
        cluster.run(phase(flag))
    cluster.close()
    assert seen == [True]


def test_in_another_thread_there_is_a_flag_and_no_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    flags: list[StopFlag] = []

    def work() -> None:
        with stop_on_interrupt() as flag:
            assert signal.getsignal(signal.SIGINT) is before
            flag.set()
            flags.append(flag)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert flags[0].is_set


def run_work(stop: StopFlag, seconds: float, ended: list[str]) -> str | None:
    async def work() -> str:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append("cleaned up")
        return "whole"

    with LocalCluster() as cluster:
        return cluster.run(unless_stopped(work(), stop))


def test_work_that_nobody_stops_gives_its_result() -> None:
    assert run_work(StopFlag(), 0, []) == "whole"


def test_work_is_cancelled_and_cleans_up_when_the_run_is_asked_to_stop() -> None:
    stop, ended = StopFlag(), []
    threading.Timer(0.2, stop.set).start()
    assert run_work(stop, 60, ended) is None
    assert ended == ["cleaned up"]


def test_what_work_raises_comes_through() -> None:
    async def work() -> None:
        raise KeyError("missing")

    with LocalCluster() as cluster, pytest.raises(KeyError, match="missing"):
        cluster.run(unless_stopped(work(), StopFlag()))
