"""Writes scalars as TensorBoard event files, without TensorFlow and without torch."""

import time

from strop.metrics.metric import Metrics, values
from strop.metrics.sinks.requirements import load_library
from strop.metrics.sinks.target import SinkTarget


class TensorboardSink:
    """Writes event files into `<run folder>/tensorboard`: `tensorboard --logdir <output folder>` shows all runs.

    On resume TensorBoard itself drops the points after the step that is kept (a session-start event).
    """

    def __init__(self, target: SinkTarget) -> None:
        writer = load_library("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._events = load_library("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = load_library("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._writer = writer.EventFileWriter(str(target.run_folder / "tensorboard"))
        if target.resume_step is not None:
            self._drop_points_after(target.resume_step)

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes one event with every measured value."""
        measured = [
            self._summaries.Summary.Value(tag=name, simple_value=value)
            for name, value in values(metrics).items()
            if value is not None
        ]
        self._write(step=step, summary=self._summaries.Summary(value=measured))
        self._writer.flush()

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()

    def _drop_points_after(self, step: int) -> None:
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._write(step=step + 1, session_log=start)

    def _write(self, **fields: object) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), **fields))
