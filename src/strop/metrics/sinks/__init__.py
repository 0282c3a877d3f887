"""Where metrics are written beside the console. Every further sink loads its library only when it is asked for."""

from strop.metrics.sinks.build import CombinedSink, Sink, build_sinks
from strop.metrics.sinks.jsonl import JsonlSink, read_metrics
from strop.metrics.sinks.requirements import check_requirements
from strop.metrics.sinks.target import SinkTarget

__all__ = [
    "CombinedSink",
    "JsonlSink",
    "Sink",
    "SinkTarget",
    "build_sinks",
    "check_requirements",
    "read_metrics",
]
