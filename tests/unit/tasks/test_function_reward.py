"""Reward functions of the user's: what they are given, what they may return, and what happens when they fail."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from strop.records import FinishState, Group, RewardPart
from strop.tasks.function_reward import FunctionReward
from strop.tasks.isolation.limits import CallLimits
from support.groups import made_group, stopped_group

SHORT = CallLimits(timeout_seconds=0.3, memory_bytes=2**29)


def reward_of(function: str, **settings: Any) -> FunctionReward:
    return FunctionReward(f"support.reward_functions:{function}", **{"name": "mine", **settings})


def judge(function: str, group: Group, completions: list[str], **settings: Any) -> list[RewardPart]:
    return asyncio.run(reward_of(function, **settings)(group, completions))


def test_arguments_are_chosen_by_name() -> None:
    group = made_group([FinishState.LENGTH], answer=7, unused="x")
    [part] = judge("arguments", group, ["text"], arguments={"scale": 2.0})
    prompt = [{"role": "user", "content": "What is it?"}]
    seen = {"completion": "text", "prompt": prompt, "finish": "length", "answer": 7, "scale": 2.0, "other": 5}
    assert repr(seen) in (part.error or "")


def test_the_plural_form_gets_lists_of_equal_length_and_everything_in_kwargs() -> None:
    parts = judge("group_arguments", stopped_group(2, answer=7, extra="x"), ["a", "b"], arguments={"scale": 2.0})
    prompt = [{"role": "user", "content": "What is it?"}]
    seen = {
        "extra": ["x", "x"],
        "scale": 2.0,
        "prompts": [prompt, prompt],
        "finishes": ["stopped", "stopped"],
        "answer": [7, 7],
    }
    assert repr(seen) in (parts[0].error or "")


def test_an_exception_invalidates_its_sample_alone_with_the_traceback() -> None:
    parts = judge("number", stopped_group(3), ["1", "two", "3"])
    assert [part.value for part in parts] == [1, None, 3]
    error = parts[1].error
    assert error is not None
    assert error.startswith("reward 'mine', prompt made:0, sample 1: ValueError: could not convert string to float")
    assert "return float(completion)" in error


def test_leaving_the_interpreter_is_an_error_like_others() -> None:
    [part] = judge("leaving", stopped_group(1), ["x"])
    assert part.value is None
    assert "SystemExit(3)" in (part.error or "")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("too_few", "must return one reward a sample (2), got 1"),
        ("bare_number", "must return a list with one reward a sample, got float"),
        ("text", "must return a list with one reward a sample, got str"),
        ("failing_group", "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_group_invalidates_all_its_samples(function: str, problem: str) -> None:
    parts = judge(function, stopped_group(2), ["x", "y"])
    for index, part in enumerate(parts):
        assert part.value is None
        assert (part.error or "").startswith(f"reward 'mine', prompt made:0, sample {index}: {problem}")


def test_each_value_of_a_group_stands_for_its_own_sample() -> None:
    parts = judge("mixed", stopped_group(4), ["w", "x", "y", "z"])
    assert [part.value for part in parts] == [None, 1.0, None, None]
    assert parts[0].error is None
    assert "got str '1'" in (parts[2].error or "")
    assert "finite number, got nan" in (parts[3].error or "")


@pytest.mark.parametrize("deed", ["segfault", "exit", "slow", "hoard"])
def test_a_call_that_takes_its_process_down_is_lost_alone(deed: str) -> None:
    limits = SHORT if deed == "slow" else CallLimits(timeout_seconds=30, memory_bytes=2**29)
    parts = judge("doing", stopped_group(4), ["a", deed, "b", "c"], limits=limits)
    assert [part.value for part in parts] == [1.0, None, 1.0, 1.0]
    told = {"segfault": "SIGSEGV", "exit": "exit code 0", "slow": "within 0.3 seconds", "hoard": "MemoryError"}[deed]
    assert told in (parts[1].error or "").replace("\n", " ")
    assert (parts[1].error or "").startswith("reward 'mine', prompt made:0, sample 1: ")


def test_an_async_call_over_its_time_is_invalid_and_the_others_go_on() -> None:
    start = time.perf_counter()
    parts = judge("doing_async", stopped_group(4), ["a", "slow", "raise", "b"], limits=SHORT)
    assert time.perf_counter() - start < 5
    assert [part.value for part in parts] == [1.0, None, None, 1.0]
    assert "must return within 0.3 seconds" in (parts[1].error or "")
    assert "ValueError: as told" in (parts[2].error or "")


@pytest.mark.parametrize(
    ("completion", "told"),
    [
        ("cancelled", "CancelledError: by a library"),
        ("exit", "SystemExit(3)"),
        ("interrupt", "KeyboardInterrupt"),
        ("out of time", "TimeoutError: my client gave up after 1 s"),
        ("cancels itself", "its task was cancelled"),
        ("no text", "RuntimeError: no text"),
        ("no value", "RuntimeError: no value"),
    ],
)
def test_whatever_an_async_function_raises_is_the_fault_of_its_sample(completion: str, told: str) -> None:
    parts = judge("raising_async", stopped_group(3), ["fine", completion, "fine"])
    assert [part.value for part in parts] == [1.0, None, 1.0]
    error = parts[1].error or ""
    assert error.startswith("reward 'mine', prompt made:0, sample 1: ")
    assert told in error
    assert "must return within" not in error
    assert "reward_functions.py" in error or completion == "cancels itself", "the line is told"


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [signal.default_int_handler, _raise_interrupt])
@pytest.mark.parametrize("runs", [asyncio.run, lambda work: asyncio.new_event_loop().run_until_complete(work)])
def test_ctrl_c_inside_of_an_async_function_still_stops_the_run(
    handler: Callable[[int, FrameType | None], None], runs: Callable[[Any], Any]
) -> None:
    reward = reward_of("raising_async")
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            runs(reward(stopped_group(2), ["fine", "Ctrl-C"]))
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_that_is_stopped_stops_its_async_calls() -> None:
    async def stopped() -> None:
        task = asyncio.ensure_future(reward_of("doing_async")(stopped_group(1), ["slow"]))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(stopped())


def test_an_async_call_over_its_time_that_cannot_be_cancelled_is_invalid_all_the_same() -> None:
    [part] = judge("stubborn_async", stopped_group(1), ["x"], limits=SHORT)
    assert part.value is None
    assert "must return within 0.3 seconds" in (part.error or "")


@pytest.mark.parametrize("in_group", [False, True])
def test_what_an_async_function_changes_in_its_arguments_reaches_no_data(in_group: bool) -> None:
    group = stopped_group(2, meta={"calls": 0})
    parts = judge("changing_group_async" if in_group else "changing_async", group, ["x", "y"])
    assert [part.value for part in parts] == [2.0, 2.0]
    assert group.prompt.columns == {"meta": {"calls": 0}}
    assert group.prompt.messages[0]["content"] == "What is it?"


def test_async_calls_overlap() -> None:
    parts = judge("counting_async", stopped_group(4), ["x"] * 4)
    assert [part.value for part in parts] == [4.0] * 4


def test_an_object_with_an_async_call_is_awaited() -> None:
    assert judge("awaitable", stopped_group(1), ["x"]) == [RewardPart(1.0)]


def test_a_module_keeps_its_state_between_calls_which_come_one_at_a_time() -> None:
    ticks = 0

    async def run() -> list[float | None]:
        nonlocal ticks
        reward = reward_of("counting")
        both = asyncio.gather(*(reward(stopped_group(2), ["x", "y"]) for _ in range(2)))
        while not both.done():
            ticks += 1
            await asyncio.sleep(0.002)
        return [part.value for parts in both.result() for part in parts]

    assert asyncio.run(run()) == [1, 2, 3, 4]
    assert ticks >= 5


def test_the_seconds_of_a_call_are_known() -> None:
    [part] = judge("counting", stopped_group(1), ["x"])
    assert 0.01 <= part.seconds < 10


def test_the_result_is_the_same_from_a_thread() -> None:
    reward = reward_of("score")
    seen: list[list[RewardPart]] = []

    def call() -> None:
        seen.append(asyncio.run(reward(stopped_group(2, answer="7"), ["7", "8"])))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    call()
    assert seen == [[RewardPart(1.0), RewardPart(0.0)]] * 4


def test_a_file_that_changes_under_a_run_is_refused_when_it_is_loaded_anew(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import os\ndef reward(completion): return 1.0 if completion else os._exit(1)\n")
    reward = FunctionReward(f"{file}:reward")
    assert asyncio.run(reward(stopped_group(1), ["x"]))[0].value == 1.0
    file.write_text("def reward(completion): return 2.0\n")
    parts = asyncio.run(reward(stopped_group(2), ["", "x"]))
    assert [part.value for part in parts] == [None, None]
    assert "must stay as it was when the run began" in (parts[1].error or "")


def test_a_required_argument_that_is_no_column_is_refused_before_training() -> None:
    reward = reward_of("misspelt")
    reward.check_columns(frozenset({"anwser"}))
    with pytest.raises(ValueError, match=r"'anwser' \(did you mean 'answer'\?\).*columns found: answer, question"):
        reward.check_columns(frozenset({"question", "answer"}))
    reward_of("misspelt", arguments={"anwser": "7"}).check_columns(frozenset())


@pytest.mark.parametrize(
    ("function", "problem"), [("positional", "by name"), ("both", "not both"), ("neither", "takes: text")]
)
def test_a_signature_that_cannot_be_called_is_refused(function: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        reward_of(function)


def test_fixed_arguments_must_be_taken_by_the_function() -> None:
    with pytest.raises(ValueError, match=r"'scal' \(did you mean 'scale'\?\)"):
        reward_of("scaled", arguments={"scal": 2})
    with pytest.raises(ValueError, match="must not set 'completion'"):
        reward_of("scaled", arguments={"completion": "x"})
    assert judge("scaled", stopped_group(1, scale=3), ["x"], arguments={"scale": 2})[0].value == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [("1 / 0\n", "line 1: ZeroDivisionError"), ("import os\nos._exit(3)\n", "the process left with exit code 3")],
)
def test_a_file_that_cannot_be_loaded_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(ValueError, match=problem):
        FunctionReward(f"{file}:reward")
