"""Means and deviations of rewards that no finite reward overflows, and that equal rewards leave at exactly 0."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LARGEST = float(np.finfo(np.float32).max)
"""Advantages lie on rows as float32: none is beyond its largest number."""

_HALF_OF_ALL = float(np.finfo(np.float64).max) / 2


class Moments(NamedTuple):
    """Mean and standard deviation, in units of a power of two near the largest value, so that no square overflows."""

    unit: float
    mean: float
    deviation: float
    """Exactly 0 where all values are equal: decided by max - min, since a computed deviation need not be."""

    def centred(self, values: Floats) -> Floats:
        """Returns value - mean, within half of float64's range; exactly 0 where there is no deviation."""
        if self.deviation == 0:
            return np.zeros_like(values)
        with np.errstate(over="ignore"):
            return np.clip((values / self.unit - self.mean) * self.unit, -_HALF_OF_ALL, _HALF_OF_ALL)

    def standardised(self, values: Floats, epsilon: float = 0.0) -> Floats:
        """Returns (value - mean) / (deviation + epsilon); exactly 0 where there is no deviation."""
        if self.deviation == 0:
            return np.zeros_like(values)
        with np.errstate(over="ignore"):
            return bounded((values / self.unit - self.mean) / (self.deviation + epsilon / self.unit))


def moments(values: Floats, *, degrees_lost: int = 0, weights: Floats | None = None) -> Moments:
    """Returns mean and deviation of some values, [n]; those of no value, or of one, have no deviation.

    The squared deviations are divided by n - degrees_lost. `weights` weigh the mean alone, [n], not all 0.
    """
    if len(values) < 2 or float(values.max()) == float(values.min()):
        return Moments(1.0, float(values[0]) if len(values) else 0.0, 0.0)
    unit = power_of_two_near(values)
    scaled = values / unit
    mean = float(scaled.mean())
    deviation = math.sqrt(float(np.square(scaled - mean).sum()) / (len(values) - degrees_lost))
    if weights is not None:
        mean = float((scaled * (weights / weights.sum())).sum())
    return Moments(unit, mean, deviation)


def bounded(values: Floats) -> Floats:
    """Returns the values within float32's range."""
    return np.clip(values, -LARGEST, LARGEST)


def power_of_two_near(values: Floats) -> float:
    """The power of two that brings the largest magnitude into [1, 2): dividing by it rounds nothing."""
    _, exponent = math.frexp(float(np.abs(values).max()))
    return math.ldexp(1.0, exponent - 1)
