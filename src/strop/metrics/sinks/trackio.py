"""Logs to trackio, which keeps everything in a local database (`TRACKIO_DIR`) unless told otherwise."""

from strop.metrics.metric import Metrics, values
from strop.metrics.sinks.requirements import load_library
from strop.metrics.sinks.target import SinkTarget


class TrackioSink:
    """Logs to one trackio run; a resumed run continues as another run of the same group."""

    def __init__(self, target: SinkTarget) -> None:
        self._trackio = load_library("trackio", "trackio")
        self._run = self._trackio.init(
            project=target.project,
            name=target.continuation_name,
            group=target.run_name,
            config={"run_folder": str(target.run_folder), "resume_step": target.resume_step},
            resume="never",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def log(self, step: int, metrics: Metrics) -> None:
        """Logs every measured value at this step."""
        measured = {name: value for name, value in values(metrics).items() if value is not None}
        self._run.log(measured, step=step)

    def close(self) -> None:
        """Waits until everything is written."""
        self._trackio.finish()
