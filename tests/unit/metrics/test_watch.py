"""A run that learns nothing says so once, in words that name the remedy."""

import math
from collections.abc import Mapping

import pytest

from strop.metrics.watch import Watch

GOOD = {
    "reward/mean": 0.5,
    "reward/std": 0.5,
    "reward/solved_share": 0.5,
    "groups/zero_signal_share": 0.25,
    "samples/truncated_share": 0.1,
    "update/gradient_norm": 0.4,
    "length/max": 16.0,
}
ZERO = {"reward/mean": 0.0, "reward/std": 0.0, "reward/solved_share": 0.0, "groups/zero_signal_share": 1.0}


def warnings_of(*steps: Mapping[str, float | None]) -> list[list[str]]:
    watch = Watch("runs/a")
    return [watch.observe({**GOOD, **step}) for step in steps]


def test_a_run_that_learns_gets_no_warning() -> None:
    assert warnings_of(*[{}] * 20) == [[]] * 20


def test_all_samples_truncated_names_the_budget_and_is_said_once() -> None:
    first, second = warnings_of({"samples/truncated_share": 1.0}, {"samples/truncated_share": 1.0})
    assert "rollout.max_new_tokens" in first[0]
    assert "of 16 tokens" in first[0]
    assert second == []


def test_nearly_all_truncated_is_no_warning() -> None:
    assert warnings_of({"samples/truncated_share": 0.97}) == [[]]


def test_rewards_that_were_never_above_zero_point_to_the_samples() -> None:
    given = warnings_of(*[ZERO] * 7)
    assert [len(step) for step in given] == [0, 0, 0, 0, 1, 0, 0]
    assert "strop samples runs/a" in given[4][0]


def test_one_reward_above_zero_is_enough_to_keep_quiet() -> None:
    assert warnings_of(*[ZERO] * 4, {"reward/mean": 0.01}, *[ZERO] * 3) == [[]] * 8


@pytest.mark.parametrize(("solved", "reason"), [(1.0, "too easy"), (0.0, "too hard")])
def test_equal_rewards_for_some_steps_say_whether_the_task_is_too_easy_or_too_hard(solved: float, reason: str) -> None:
    equal = {"groups/zero_signal_share": 1.0, "reward/solved_share": solved, "reward/mean": 0.9}
    given = warnings_of({}, *[equal] * 6)
    assert [len(step) for step in given] == [0, 0, 0, 0, 0, 1, 0]
    assert reason in given[5][0]


def test_a_step_without_any_valid_reward_names_the_first_error() -> None:
    watch = Watch("runs/a")
    (warning,) = watch.observe(GOOD | {"reward/mean": None}, first_error="KeyError: 'answer'")
    assert "KeyError: 'answer'" in warning


def test_a_gradient_far_above_its_median_is_named_with_the_remedy() -> None:
    given = warnings_of(*[{}] * 6, {"update/gradient_norm": 40.0})
    assert "100 times its median" in given[-1][0]
    assert "training.learning_rate" in given[-1][0]


def test_a_gradient_that_is_not_finite_is_named_in_the_first_step() -> None:
    assert "not finite" in warnings_of({"update/gradient_norm": math.nan})[0][0]
