"""Means and deviations of rewards of any size, against Python's statistics."""

import math
import statistics
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.algorithms.advantages.moments import LARGEST, bounded, moments

VALUES = st.lists(st.floats(-1e6, 1e6).map(lambda value: round(value, 4)), min_size=2, max_size=20)


@given(VALUES, st.sampled_from([0, 1]))
def test_moments_agree_with_exact_fractions(values: list[float], degrees_lost: int) -> None:
    found = moments(np.array(values), degrees_lost=degrees_lost)
    deviation = (statistics.stdev if degrees_lost else statistics.pstdev)(values)
    mean = statistics.fmean(values)
    centred, standardised = found.centred(np.array(values)), found.standardised(np.array(values))
    if max(values) == min(values):
        assert not centred.any()
        assert not standardised.any()
        return
    assert centred == pytest.approx([value - mean for value in values], rel=1e-10, abs=1e-9)
    assert standardised == pytest.approx([(value - mean) / deviation for value in values], rel=1e-9, abs=1e-9)


@given(VALUES)
def test_a_power_of_two_changes_no_bit_of_what_is_standardised(values: list[float]) -> None:
    plain = moments(np.array(values)).standardised(np.array(values))
    huge = np.array(values) * 2.0**900
    np.testing.assert_array_equal(moments(huge).standardised(huge), plain)


def test_the_epsilon_is_in_the_units_of_the_values() -> None:
    values = np.array([0.0, 6.0])
    assert moments(values).standardised(values, 1.0) == pytest.approx([-3 / 4, 3 / 4])


def test_weights_weigh_the_mean() -> None:
    values = np.array([1.0, 0.0])
    assert moments(values, weights=np.array([3.0, 1.0])).centred(values).tolist() == [0.25, -0.75]


def test_no_value_and_one_have_no_deviation() -> None:
    for values in (np.empty(0), np.array([3.0]), np.array([0.1] * 7)):
        assert not moments(values, degrees_lost=1).standardised(values).any()
        assert moments(values).deviation == 0


@pytest.mark.parametrize("values", [[sys.float_info.max, -sys.float_info.max], [5e-324, 0.0], [1e200, 1.0, -1e200]])
def test_the_ends_of_float64_are_standardised(values: list[float]) -> None:
    found = moments(np.array(values)).standardised(np.array(values))
    assert np.isfinite(found).all()
    assert math.sqrt(float(np.square(found).mean())) == pytest.approx(1)


def test_what_float32_cannot_hold_becomes_its_largest_number() -> None:
    assert np.isfinite(bounded(np.array([1e300, -np.inf])).astype(np.float32)).all()
    assert bounded(np.array([LARGEST, 2.0])).tolist() == [LARGEST, 2.0]
