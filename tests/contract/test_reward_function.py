"""What every RewardFunction must do, run on every implementation: one part a sample, and a failure is data."""

import asyncio
from collections.abc import Callable

import pytest

from strop.config.data import DataConfig
from strop.protocols import RewardFunction
from strop.tasks import build_task
from strop.tasks.function_reward import FunctionReward
from support.groups import stopped_group


def grader(task: str) -> RewardFunction:
    config = DataConfig.model_validate({"source": {"type": "jsonl", "path": "x"}, "task": task})
    return build_task(task, config).rewards[0]


def function(name: str) -> RewardFunction:
    return FunctionReward(f"support.reward_functions:{name}")


IMPLEMENTATIONS: dict[str, tuple[Callable[[], RewardFunction], str]] = {
    "gsm8k": (lambda: grader("gsm8k"), "#### 7"),
    "math": (lambda: grader("math"), r"\boxed{7}"),
    "code": (lambda: grader("code"), "```python\nprint(7)\n```"),
    "reasoning_gym": (lambda: grader("reasoning_gym:chain_sum"), "<answer>7</answer>"),
    "per sample": (lambda: function("score"), "7"),
    "per sample, async": (lambda: function("score_async"), "7"),
    "per group": (lambda: function("score_group"), "7"),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def case(request: pytest.FixtureRequest) -> tuple[RewardFunction, str]:
    build, right = IMPLEMENTATIONS[request.param]
    return build(), right


TESTS = {"inputs": ["3 4"], "outputs": ["7"]}
COLUMNS = {"question": "3 + 4 =", "answer": "7", "metadata": {}, "tests": TESTS}


def test_parts_come_in_the_order_of_the_samples(case: tuple[RewardFunction, str]) -> None:
    reward, right = case
    completions = [right, "wrong", "", right]
    parts = asyncio.run(reward(stopped_group(4, **COLUMNS), completions))
    assert [part.value for part in parts] == [1, 0, 0, 1]
    assert all(part.error is None for part in parts)


def test_a_failure_is_an_invalid_part_that_names_prompt_and_sample(case: tuple[RewardFunction, str]) -> None:
    reward, right = case
    parts = asyncio.run(reward(stopped_group(2), [right, right]))
    assert [part.value for part in parts] == [None, None]
    for index, part in enumerate(parts):
        assert part.error is not None
        assert f"prompt made:0, sample {index}" in part.error
        assert "answer" in part.error


def test_one_reward_serves_many_groups_and_event_loops(case: tuple[RewardFunction, str]) -> None:
    reward, right = case

    async def many() -> list[list[float | None]]:
        groups = [stopped_group(2, **COLUMNS) for _ in range(5)]
        results = await asyncio.gather(*(reward(group, [right, "wrong"]) for group in groups))
        return [[part.value for part in parts] for parts in results]

    for _ in range(2):
        assert asyncio.run(many()) == [[1, 0]] * 5


def test_it_has_a_name(case: tuple[RewardFunction, str]) -> None:
    assert case[0].name
