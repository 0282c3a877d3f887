"""A metric is a value, how it is reduced, and its unit. This package never imports torch."""

from strop.metrics.metric import Metric, Metrics, Reduction, maximum, mean, merge, minimum, total, values

__all__ = ["Metric", "Metrics", "Reduction", "maximum", "mean", "merge", "minimum", "total", "values"]
