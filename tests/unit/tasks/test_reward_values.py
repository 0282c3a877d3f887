"""What a reward function may return, and what is said of everything else."""

import math
from typing import Any

import numpy as np
import pytest

from strop.tasks.returned import LARGEST_REWARD, read_list, read_number


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2)])
def test_numbers_are_values(value: Any) -> None:
    assert read_number(value) == (2.0, None)


@pytest.mark.parametrize("value", [True, np.bool_(True)])
def test_truth_is_one(value: Any) -> None:
    assert read_number(value) == (1.0, None)


def test_none_is_no_value_and_no_problem() -> None:
    assert read_number(None) == (None, None)
    assert read_list([None, 1], 2) == [(None, None), (1.0, None)]


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, 1e39, "1", [1.0], 1j, np.float64("nan"), object()]
)
def test_what_is_no_finite_number_is_a_problem(value: Any) -> None:
    number, problem = read_number(value)
    assert number is None
    assert problem is not None
    assert problem.startswith("must return a ")


def test_the_largest_reward_is_the_largest_float32() -> None:
    assert float(np.finfo(np.float32).max) == LARGEST_REWARD
    assert read_number(LARGEST_REWARD) == (LARGEST_REWARD, None)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ([1.0], "must return one reward a sample (2), got 1"),
        ([1.0] * 3, "must return one reward a sample (2), got 3"),
        (np.ones(3), "must return one reward a sample (2), got 3"),
        (np.array(1.0), "must return a list with one reward a sample, got a single number, ndarray array(1.)"),
        (1.0, "must return a list with one reward a sample, got float 1.0"),
        ("ab", "must return a list with one reward a sample, got str 'ab'"),
        (None, "must return a list with one reward a sample, got NoneType None"),
    ],
)
def test_a_wrong_count_is_the_problem_of_every_sample(returned: Any, problem: str) -> None:
    assert read_list(returned, 2) == [(None, problem)] * 2


def test_arrays_and_tuples_are_lists() -> None:
    assert read_list(np.array([1.0, 0.0]), 2) == read_list((1, 0), 2) == [(1.0, None), (0.0, None)]


def test_a_long_value_is_shown_short() -> None:
    _, problem = read_number("x" * 10**6)
    assert problem is not None
    assert len(problem) < 300
