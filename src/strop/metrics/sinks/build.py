"""Builds the sinks that the configuration names."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from strop.metrics.metric import Metrics
from strop.metrics.settings import SinkName, SinkSettings
from strop.metrics.sinks.jsonl import FILE_NAME, JsonlSink
from strop.metrics.sinks.target import SinkTarget


class Sink(Protocol):
    """Takes the metrics of a step somewhere; `strop.protocols.MetricSink`, which this package must not import."""

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of one step."""

    def close(self) -> None:
        """Flushes and closes."""


class CombinedSink:
    """Passes every step to several sinks, and closes all of them even where one fails to close."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of one step to every sink, in order."""
        for sink in self._sinks:
            sink.log(step, metrics)

    def close(self) -> None:
        """Closes every sink, the last one first; then raises what one of them raised."""
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)


def build_sinks(
    settings: SinkSettings, run_folder: Path, run_name: str, resume_step: int | None = None
) -> CombinedSink:
    """Returns `metrics.jsonl` and the configured sinks behind one sink.

    `resume_step` is the last step that is kept; None starts a new run. Raises ConfigError naming the extra to
    install, and where a new run would write into the metrics of an old one.
    """
    target = SinkTarget(run_folder, run_name, settings.project, resume_step)
    with ExitStack() as opened:
        further = []
        for name in settings.sinks:
            further.append(_build_sink(name, target))
            opened.callback(further[-1].close)
        combined = CombinedSink([JsonlSink(run_folder / FILE_NAME, resume_step), *further])
        opened.pop_all()
    return combined


def _build_sink(name: SinkName, target: SinkTarget) -> Sink:
    match name:
        case "tensorboard":
            from strop.metrics.sinks.tensorboard import TensorboardSink

            return TensorboardSink(target)
        case "wandb":
            from strop.metrics.sinks.wandb import WandbSink

            return WandbSink(target)
        case "trackio":
            from strop.metrics.sinks.trackio import TrackioSink

            return TrackioSink(target)
        case "mlflow":
            from strop.metrics.sinks.mlflow import MlflowSink

            return MlflowSink(target)
