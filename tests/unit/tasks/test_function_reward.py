"""Reward functions of the user's: what they are given, what they may return, and what happens when they fail."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from strop.records import FinishState, Group, RewardPart
from strop.tasks.function_reward import FunctionReward
from support.groups import made_group, stopped_group


def judge(function: Callable[..., Any], group: Group, completions: list[str], **settings: Any) -> list[RewardPart]:
    return asyncio.run(FunctionReward(function, name="mine", **settings)(group, completions))


def test_arguments_are_chosen_by_name() -> None:
    seen: dict[str, Any] = {}

    def mine(
        completion: str, prompt: list[dict[str, str]], finish: str, answer: int, scale: float, other: int = 5
    ) -> float:
        seen.update(locals())
        return 1.0

    group = made_group([FinishState.LENGTH], answer=7, unused="x")
    assert judge(mine, group, ["text"], arguments={"scale": 2.0})[0].value == 1.0
    seen.pop("seen")
    assert seen == {
        "completion": "text",
        "prompt": [{"role": "user", "content": "What is it?"}],
        "finish": "length",
        "answer": 7,
        "scale": 2.0,
        "other": 5,
    }


def test_the_plural_form_gets_lists_of_equal_length_and_everything_in_kwargs() -> None:
    seen: dict[str, Any] = {}

    def mine(completions: list[str], answer: list[int], **rest: Any) -> list[float]:
        seen.update(rest, answer=answer)
        return [0.5, 1.5]

    parts = judge(mine, stopped_group(2, answer=7, extra="x"), ["a", "b"], arguments={"scale": 2.0})
    assert [part.value for part in parts] == [0.5, 1.5]
    prompt = [{"role": "user", "content": "What is it?"}]
    assert seen == {
        "answer": [7, 7],
        "extra": ["x", "x"],
        "prompts": [prompt, prompt],
        "finishes": ["stopped", "stopped"],
        "scale": 2.0,
    }


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2)])
def test_numbers_are_values(value: Any) -> None:
    assert judge(lambda completion: value, stopped_group(1), ["x"]) == [RewardPart(2.0)]


@pytest.mark.parametrize("value", [True, np.bool_(True)])
def test_truth_is_one(value: Any) -> None:
    assert judge(lambda completion: value, stopped_group(1), ["x"]) == [RewardPart(1.0)]


def test_none_is_invalid_without_an_error() -> None:
    assert judge(lambda completion: None, stopped_group(1), ["x"]) == [RewardPart(None)]
    assert judge(lambda completions: [None, 1], stopped_group(2), ["x", "y"]) == [RewardPart(None), RewardPart(1.0)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1", [1.0], 1j, np.float64("nan")])
def test_what_is_no_finite_number_is_invalid_with_the_reason(value: Any) -> None:
    [part] = judge(lambda completion: value, stopped_group(1), ["x"])
    assert part.value is None
    assert part.error is not None
    assert part.error.startswith("reward 'mine', prompt made:0, sample 0: must return a ")


def test_an_exception_invalidates_its_sample_alone_with_the_traceback() -> None:
    def mine(completion: str) -> float:
        return float(completion)

    parts = judge(mine, stopped_group(3), ["1", "two", "3"])
    assert [part.value for part in parts] == [1, None, 3]
    error = parts[1].error
    assert error is not None
    assert error.startswith("reward 'mine', prompt made:0, sample 1: ValueError: could not convert string to float")
    assert "return float(completion)" in error


def test_leaving_the_interpreter_is_an_error_like_others() -> None:
    def mine(completion: str) -> float:
        raise SystemExit(3)

    [part] = judge(mine, stopped_group(1), ["x"])
    assert part.value is None
    assert "SystemExit(3)" in (part.error or "")


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ([1.0], r"must return one reward a sample \(2\), got 1"),
        (1.0, "must return a list"),
        ("ab", "must return a list"),
    ],
)
def test_a_wrong_count_invalidates_the_whole_group(returned: Any, problem: str) -> None:
    parts = judge(lambda completions: returned, stopped_group(2), ["x", "y"])
    for index, part in enumerate(parts):
        assert part.value is None
        with pytest.raises(ValueError, match=rf"reward 'mine', prompt made:0, sample {index}: {problem}"):
            raise ValueError(part.error)


def test_an_exception_in_the_plural_form_invalidates_the_whole_group() -> None:
    parts = judge(lambda completions: 1 / 0, stopped_group(2), ["x", "y"])
    assert [part.value for part in parts] == [None, None]
    assert all("ZeroDivisionError" in (part.error or "") for part in parts)


def test_async_calls_overlap() -> None:
    running = most = 0

    async def mine(completion: str) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return 1.0

    assert [part.value for part in judge(mine, stopped_group(4), ["x"] * 4)] == [1.0] * 4
    assert most == 4


def test_an_object_with_an_async_call_is_awaited() -> None:
    class Mine:
        async def __call__(self, completion: str) -> float:
            return 1.0

    assert judge(Mine(), stopped_group(1), ["x"]) == [RewardPart(1.0)]


def test_blocking_calls_come_one_at_a_time_and_leave_the_event_loop_free() -> None:
    running = most = ticks = 0

    def mine(completion: str) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.03)
        running -= 1
        return 1.0

    async def run() -> None:
        nonlocal ticks
        reward = FunctionReward(mine, name="mine")
        both = asyncio.gather(*(reward(stopped_group(2), ["x", "y"]) for _ in range(2)))
        while not both.done():
            ticks += 1
            await asyncio.sleep(0.005)

    asyncio.run(run())
    assert most == 1
    assert ticks >= 5


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_over_its_time_is_invalid_and_the_others_go_on(is_async: bool) -> None:
    def blocking(completion: str) -> float:
        time.sleep(5 if completion == "slow" else 0)
        return 1.0

    async def awaiting(completion: str) -> float:
        await asyncio.sleep(5 if completion == "slow" else 0)
        return 1.0

    start = time.perf_counter()
    function = awaiting if is_async else blocking
    parts = judge(function, stopped_group(3), ["a", "slow", "b"], timeout_seconds=0.2)
    assert time.perf_counter() - start < 2
    assert [part.value for part in parts] == [1.0, None, 1.0]
    assert "must return within 0.2 seconds" in (parts[1].error or "")


def test_a_required_argument_that_is_no_column_is_refused_before_training() -> None:
    def mine(completion: str, anwser: str, level: int = 1) -> float:
        return 1.0

    reward = FunctionReward(mine, name="mine")
    reward.check_columns(frozenset({"anwser"}))
    with pytest.raises(ValueError, match=r"'anwser' \(did you mean 'answer'\?\).*columns found: answer, question"):
        reward.check_columns(frozenset({"question", "answer"}))
    FunctionReward(mine, name="mine", arguments={"anwser": "7"}).check_columns(frozenset())


def positional(completion: str, /) -> float:
    return 1.0


def both(completion: str, completions: list[str]) -> float:
    return 1.0


def neither(text: str, **rest: Any) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("function", "problem"), [(positional, "by name"), (both, "not both"), (neither, "takes: text")]
)
def test_a_signature_that_cannot_be_called_is_refused(function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FunctionReward(function, name="mine")


def test_fixed_arguments_must_be_taken_by_the_function() -> None:
    def mine(completion: str, scale: float = 1) -> float:
        return scale

    with pytest.raises(ValueError, match=r"'scal' \(did you mean 'scale'\?\)"):
        FunctionReward(mine, name="mine", arguments={"scal": 2})
    with pytest.raises(ValueError, match="must not set 'completion'"):
        FunctionReward(mine, name="mine", arguments={"completion": "x"})
    assert judge(mine, stopped_group(1, scale=3), ["x"], arguments={"scale": 2})[0].value == 2
