"""Calls in child processes: results come back, and whatever one call does to its process costs that call alone."""

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strop.tasks.isolation.outcome import Outcome
from strop.tasks.isolation.pool import Pool, shared_pool
from support.isolated_calls import crashing_at_load, misbehaving, unloadable


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(num_processes=1, memory_bytes=2**29)
    yield pool
    pool.close()


def run(pool: Pool, *calls: tuple[Any, ...], timeout_seconds: float = 30.0) -> list[Outcome]:
    return pool.submit(misbehaving, calls, timeout_seconds=timeout_seconds).result(60)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and is not reaped by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(pids: list[int], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_outcomes_come_in_the_order_of_the_calls(pool: Pool) -> None:
    calls = [("echo", value) for value in (1, "two", None, [3.5, {"a": "\ud800"}], "x" * 2**20)]
    outcomes = run(pool, *calls)
    assert [outcome.value for outcome in outcomes] == [value for _, value in calls]
    assert all(outcome.error is None for outcome in outcomes)
    assert run(pool) == []


@pytest.mark.parametrize(
    "answer",
    [
        {"call": 0},
        {"call": 0, "seconds": "x", "is_last": False, "threads": 0},
        {"call": 0, "seconds": -1, "is_last": False, "threads": 0},
        {"call": 0, "seconds": 1, "is_last": "no", "threads": 0},
        {"call": 0, "seconds": 1, "is_last": False, "threads": "0"},
        {"call": 0, "seconds": 1, "is_last": True, "threads": 0},
        {"call": 0, "seconds": 1, "is_last": False, "threads": 0, "error": 7},
        {"call": 1, "seconds": 1, "is_last": False, "threads": 0},
        [0],
    ],
)
def test_an_answer_of_another_form_costs_its_call_and_not_the_lane(pool: Pool, answer: Any) -> None:
    calls = [("forge", json.dumps(answer)), ("echo", 1)]
    forged, echo = run(pool, *calls)
    assert "wrote into the connection of its parent" in (forged.error or "")
    assert echo.value == 1


def test_an_answer_of_very_deep_brackets_costs_its_call_and_not_the_lane(pool: Pool) -> None:
    forged, echo = run(pool, ("forge", "[" * 2**16), ("echo", 1))
    assert "wrote into the connection of its parent" in (forged.error or "")
    assert echo.value == 1


@pytest.mark.parametrize(
    ("deed", "argument", "told"),
    [
        ("raise", None, "ZeroDivisionError: integer division or modulo by zero"),
        ("exit", 3, "SystemExit(3)"),
        ("_exit", 0, "the process left with exit code 0"),
        ("_exit", 3, "the process left with exit code 3"),
        ("segfault", None, "the process was ended by SIGSEGV"),
        ("kill -9", None, "the process was ended by SIGKILL"),
        ("hoard", None, "MemoryError"),
        ("hold", 2**30, "MemoryError"),
        ("scribble", None, "the process wrote into the connection of its parent"),
        ("close all", None, "the process left with exit code 0"),
        ("unserialisable", None, "TypeError: Object of type object is not JSON serializable"),
    ],
)
def test_a_call_that_goes_wrong_is_lost_alone(pool: Pool, deed: str, argument: Any, told: str) -> None:
    run(pool, *[("echo", 0)] * 30)  # calls are known to be short, so that all below go in one batch
    calls = [("echo", 1), ("echo", 2), (deed, argument), ("echo", 4), ("echo", 5)]
    outcomes = run(pool, *calls)
    assert [outcome.value for outcome in outcomes] == [1, 2, None, 4, 5]
    assert told in (outcomes[2].error or "").splitlines()[0]
    assert [outcome.error for outcome in outcomes if outcome.value is not None] == [None] * 4


@pytest.mark.parametrize("deed", ["sleep", "spin", "hang in C"])
def test_a_call_that_hangs_is_killed_and_its_place_in_the_code_is_told(pool: Pool, deed: str) -> None:
    start = time.monotonic()
    outcomes = run(pool, ("echo", 1), (deed, 600), ("echo", 3), timeout_seconds=0.3)
    assert time.monotonic() - start < 10
    assert [outcome.value for outcome in outcomes] == [1, None, 3]
    error = outcomes[1].error or ""
    assert error.startswith("must return within 0.3 seconds, and did not; it was killed in ")
    assert re.search(r'killed in "[^"]+\.py", line \d+ in .+\n', error)
    assert "isolated_calls.py" in error
    assert outcomes[1].seconds >= 0.3


@pytest.mark.parametrize("deed", ["alarm later", "exit later", "fork a killer"])
def test_what_a_call_leaves_to_go_off_later_costs_no_other_call(pool: Pool, deed: str) -> None:
    run(pool, *[("echo", 0)] * 30)
    outcomes = run(pool, (deed, 0.2), ("nap", 0.4), ("echo", 3))
    assert [outcome.value for outcome in outcomes] == ["armed", "slept", 3]
    assert [outcome.error for outcome in outcomes] == [None] * 3


def test_a_thread_that_a_call_leaves_and_that_blocks_the_process_costs_no_other_call(pool: Pool) -> None:
    outcomes = run(pool, ("leave a thread", 0.1), ("nap", 0.3), ("echo", 3), timeout_seconds=1.0)
    assert [outcome.value for outcome in outcomes] == ["armed", "slept", 3]


def test_memory_that_a_call_keeps_costs_no_other_call(pool: Pool) -> None:
    outcomes = run(pool, ("keep", 3 * 2**27), ("need", 3 * 2**27), ("echo", 3))
    assert [outcome.value for outcome in outcomes] == ["kept", 3 * 2**27, 3]


def test_a_call_that_ends_its_process_is_tried_at_most_twice(pool: Pool, tmp_path: Path) -> None:
    run(pool, ("echo", 0))
    file = tmp_path / "calls"
    first, second = run(pool, ("crash and note", str(file)), ("crash and note", str(file)))
    assert file.read_text() == "xxx"  # the first once more in a fresh process, the second in a fresh one at once
    assert "exit code 5" in (first.error or "")
    assert "exit code 5" in (second.error or "")


def test_tracebacks_begin_in_the_called_code(pool: Pool) -> None:
    [outcome] = run(pool, ("raise", None))
    assert "isolated_calls.py" in (outcome.error or "")
    assert "child.py" not in (outcome.error or "")


def test_the_time_limit_counts_from_the_start_of_each_call(pool: Pool) -> None:
    outcomes = run(pool, *[("sleep", 0.1)] * 8, timeout_seconds=0.6)
    assert [outcome.error for outcome in outcomes] == [None] * 8
    assert all(0.1 <= outcome.seconds < 0.6 for outcome in outcomes)


def test_what_a_call_prints_goes_to_stderr(pool: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    with_own_streams = Pool(num_processes=1, memory_bytes=2**29)
    assert run(with_own_streams, ("print", "shown"), ("echo", 1))[1].value == 1
    with_own_streams.close()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "shown\n")


def test_ctrl_c_does_not_reach_the_calls(pool: Pool) -> None:
    assert run(pool, ("interrupt", None), ("echo", 1)) == [
        Outcome(None, seconds=pytest.approx(0, abs=5)),
        *[Outcome(1, seconds=pytest.approx(0, abs=5))],
    ]


def test_a_fork_that_returns_into_the_child_is_not_heard(pool: Pool) -> None:
    assert [outcome.value for outcome in run(pool, ("fork", None), ("echo", 1))] == ["once", 1]


def test_the_child_has_no_torch_unless_a_call_imports_it(pool: Pool) -> None:
    [outcome] = run(pool, ("modules", None))
    assert "strop.tasks.isolation.child" in outcome.value
    assert not {"torch", "numpy", "pydantic", "transformers"} & set(outcome.value)


def test_arguments_that_cannot_travel_cost_their_call(pool: Pool) -> None:
    outcomes = run(pool, ("echo", 1), ("echo", threading.Lock()), ("echo", 3))
    assert [outcome.value for outcome in outcomes] == [1, None, 3]
    assert "cannot be sent to another process: TypeError" in (outcomes[1].error or "")


@pytest.mark.parametrize(
    ("factory", "told"),
    [
        (unloadable, "cannot be loaded: ImportError: no such scorer"),
        (crashing_at_load, "while it was loaded: the process left with exit code 7"),
    ],
)
def test_what_cannot_be_loaded_costs_its_own_calls_alone(pool: Pool, factory: Any, told: str) -> None:
    before, after = (pool.submit(misbehaving, [("echo", 1)], timeout_seconds=5) for _ in range(2))
    broken = pool.submit(factory, [(1,), (2,)], timeout_seconds=5).result(60)
    assert [(outcome.error or "").splitlines()[0] for outcome in broken] == [told] * 2
    assert before.result(60)[0].value == after.result(60)[0].value == 1


def test_a_child_that_was_killed_while_idle_costs_nothing(pool: Pool) -> None:
    [outcome] = run(pool, ("pid", None))
    os.kill(outcome.value, 9)
    assert gone_within([outcome.value])
    [fresh] = run(pool, ("pid", None))
    assert fresh.error is None
    assert fresh.value != outcome.value


def test_processes_work_side_by_side_and_end_with_what_they_started() -> None:
    pool = Pool(num_processes=2, memory_bytes=2**29)
    try:
        sleepers = [run(pool, ("start sleeper", None))[0].value]
        run(pool, ("echo", 1), ("echo", 2))
        start = time.monotonic()
        run(pool, ("sleep", 0.4), ("sleep", 0.4))
        assert time.monotonic() - start < 0.75
        assert len({outcome.value for outcome in run(pool, *[("pid", None)] * 50)} | set(pool.pids)) == 2
        pids = pool.pids
    finally:
        start = time.monotonic()
        pool.close()
    assert time.monotonic() - start < 2
    assert gone_within([*pids, *sleepers], 2)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(misbehaving, [("echo", 1)], timeout_seconds=1)


def test_closing_kills_a_call_that_hangs_and_tells_who_waits() -> None:
    pool = Pool(num_processes=1, memory_bytes=2**29)
    run(pool, ("echo", 1))
    waiting = pool.submit(misbehaving, [("spin", None), ("echo", 2)], timeout_seconds=600)
    pids = pool.pids
    time.sleep(0.1)
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 5
    assert [outcome.value for outcome in waiting.result(5)] == [None, None]
    assert gone_within(pids, 2)


def test_a_pool_that_is_dropped_ends_its_children() -> None:
    pool = Pool(num_processes=1, memory_bytes=2**29)
    run(pool, ("echo", 1))
    pids = pool.pids
    del pool
    gc.collect()
    assert gone_within(pids)


def test_any_event_loop_and_thread_gets_the_same(pool: Pool) -> None:
    async def one() -> list[Any]:
        return [outcome.value for outcome in await pool.run(misbehaving, [("echo", 1), ("echo", 2)], timeout_seconds=5)]

    async def many() -> list[list[Any]]:
        return await asyncio.gather(*(one() for _ in range(20)))

    seen: list[list[list[Any]]] = [asyncio.run(many()), asyncio.run(many())]
    threads = [threading.Thread(target=lambda: seen.append(asyncio.run(many()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[[1, 2]] * 20] * 5


def test_calls_of_a_cancelled_job_are_not_begun(pool: Pool) -> None:
    async def cancelled() -> None:
        first = asyncio.ensure_future(pool.run(misbehaving, [("sleep", 0.2)], timeout_seconds=5))
        second = asyncio.ensure_future(pool.run(misbehaving, [("hold", 1)] * 100 + [("_exit", 1)], timeout_seconds=5))
        await asyncio.sleep(0.05)
        second.cancel()
        await first

    [before] = run(pool, ("pid", None))
    asyncio.run(cancelled())
    assert run(pool, ("pid", None))[0].value == before.value


def test_a_fork_of_the_parent_has_pools_of_its_own_and_leaves_the_parents_alone() -> None:
    shared = shared_pool(1, 2**29)
    [before] = run(shared, ("pid", None))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            [own] = run(shared_pool(1, 2**29), ("pid", None))
            code = 0 if own.value not in (None, before.value) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(shared_pool(1, 2**29), ("pid", None))[0].value == before.value


PARENT = """
import sys, threading, time
sys.path[:0] = {path!r}
from strop.tasks.isolation.pool import Pool
from support.isolated_calls import misbehaving
pool = Pool(num_processes=2, memory_bytes=2**29)
def start():
    pool.submit(misbehaving, [("echo", 1)] * 4, timeout_seconds=30).result()
    hanging = pool.submit(misbehaving, [("hang in C", 1)], timeout_seconds=600)
starter = threading.Thread(target=start)
starter.start()
starter.join()
while len(pool.pids) < 2:
    time.sleep(0.01)
time.sleep(0.1)
print(*pool.pids, flush=True)
{then}
"""


@pytest.mark.parametrize("then", ["threading.Event().wait(60)", "pass", "raise SystemExit(1)", "1 / 0"])
def test_children_end_with_their_parent_however_it_ends(then: str) -> None:
    script = PARENT.format(path=sys.path, then=then)
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    if "wait" in then:
        parent.kill()
    parent.wait(20)
    assert gone_within(pids)
