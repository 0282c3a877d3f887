"""Group advantages against published numbers and a float64 oracle."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strop.algorithms.advantages.group import EPSILON, group_advantages


def test_one_of_four_solved_gives_the_published_numbers() -> None:
    assert group_advantages([1, 0, 0, 0], "sample") == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)
    assert group_advantages([1, 0, 0, 0], "population") == pytest.approx(
        [math.sqrt(3), *[-math.sqrt(3) / 3] * 3], rel=1e-5
    )
    assert group_advantages([1, 0, 0, 0], "none") == [0.75, -0.25, -0.25, -0.25]


def test_equal_rewards_give_exactly_zero_though_their_float32_deviation_is_not_zero() -> None:
    rewards = [float(np.float32(0.7))] * 8
    assert torch.full((8,), 0.7).std() > 0
    for std in ("sample", "population", "none"):
        assert group_advantages(rewards, std) == [0.0] * 8


def test_a_group_of_one_gives_zero() -> None:
    assert group_advantages([1.0], "sample") == [0.0]
    assert group_advantages([1.0], "none") == [0.0]


def test_an_invalid_reward_gets_zero_and_does_not_poison_its_group() -> None:
    assert group_advantages([1.0, None, 0.0, 0.0, 0.0], "sample") == pytest.approx([1.5, 0, -0.5, -0.5, -0.5], rel=1e-5)
    assert group_advantages([None, None], "sample") == [0.0, 0.0]
    assert group_advantages([None, 1.0], "sample") == [0.0, 0.0]


def test_an_empty_group_gives_nothing() -> None:
    assert group_advantages([], "sample") == []


@given(st.lists(st.one_of(st.none(), st.floats(-100, 100)), max_size=12), st.sampled_from(["sample", "population"]))
def test_advantages_agree_with_a_float64_oracle(rewards: list[float | None], std: str) -> None:
    valid = np.array([r for r in rewards if r is not None], dtype=np.float64)
    found = group_advantages(rewards, std)
    if len(valid) < 2 or valid.max() == valid.min():
        assert found == [0.0] * len(rewards)
        return
    deviation = valid.std(ddof=1 if std == "sample" else 0) + EPSILON
    expected = [0.0 if r is None else (r - valid.mean()) / deviation for r in rewards]
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert abs(sum(found)) < 1e-6 * max(1, len(found))
