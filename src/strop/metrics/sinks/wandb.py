"""Sends metrics to Weights & Biases; `WANDB_MODE=offline` keeps them in the run folder for `wandb sync`."""

from strop.metrics.metric import Metrics, values
from strop.metrics.sinks.requirements import load_library
from strop.metrics.sinks.target import SinkTarget


class WandbSink:
    """Logs to one W&B run; a resumed run continues as another run of the same group."""

    def __init__(self, target: SinkTarget) -> None:
        self._run = load_library("wandb", "wandb").init(
            project=target.project,
            name=target.continuation_name,
            group=target.run_name,
            dir=str(target.run_folder),
            config={"run_folder": str(target.run_folder), "resume_step": target.resume_step},
        )

    def log(self, step: int, metrics: Metrics) -> None:
        """Logs every measured value at this step."""
        measured = {name: value for name, value in values(metrics).items() if value is not None}
        self._run.log(measured, step=step, commit=True)

    def close(self) -> None:
        """Waits until everything is written or sent."""
        self._run.finish()
