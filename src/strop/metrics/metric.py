"""Metrics carry their reduction, so that partial values from micro-batches and ranks add up exactly."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reduction(StrEnum):
    """How two partial values of one metric become one."""

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class Metric:
    """A partial value. For a mean, `value` is the weighted sum and `weight` the sum of weights."""

    value: float
    weight: float
    reduction: Reduction
    unit: str = ""

    @property
    def result(self) -> float | None:
        """The reduced value; None where a mean has no weight (nothing was measured)."""
        if self.reduction is not Reduction.MEAN:
            return self.value
        return self.value / self.weight if self.weight else None

    def merged(self, other: "Metric") -> "Metric":
        """Returns the metric over both parts."""
        if (self.reduction, self.unit) != (other.reduction, other.unit):
            raise ValueError(
                f"parts of one metric must agree in reduction and unit, got {self.reduction} [{self.unit}] "
                f"and {other.reduction} [{other.unit}]"
            )
        match self.reduction:
            case Reduction.MEAN | Reduction.SUM:
                value = self.value + other.value
            case Reduction.MAX:
                value = max(self.value, other.value)
            case Reduction.MIN:
                value = min(self.value, other.value)
        return Metric(value, self.weight + other.weight, self.reduction, self.unit)


Metrics = dict[str, Metric]
"""Metrics by name, such as `reward/mean` or `timing/weight_sync_seconds`: one name is one quantity."""


def mean(weighted_sum: float, weight: float, unit: str = "") -> Metric:
    """Returns a mean from its weighted sum and its sum of weights."""
    return Metric(float(weighted_sum), float(weight), Reduction.MEAN, unit)


def total(value: float, unit: str = "") -> Metric:
    """Returns a metric that adds up."""
    return Metric(float(value), 1.0, Reduction.SUM, unit)


def maximum(value: float, unit: str = "") -> Metric:
    """Returns a metric that keeps the largest part."""
    return Metric(float(value), 1.0, Reduction.MAX, unit)


def minimum(value: float, unit: str = "") -> Metric:
    """Returns a metric that keeps the smallest part."""
    return Metric(float(value), 1.0, Reduction.MIN, unit)


def merge(parts: Iterable[Mapping[str, Metric]]) -> Metrics:
    """Merges the metrics of micro-batches, ranks or updates by name."""
    merged: Metrics = {}
    for part in parts:
        for name, metric in part.items():
            merged[name] = merged[name].merged(metric) if name in merged else metric
    return merged


def values(metrics: Mapping[str, Metric]) -> dict[str, float | None]:
    """Returns the reduced values by name, in the order of the names."""
    return {name: metrics[name].result for name in sorted(metrics)}
