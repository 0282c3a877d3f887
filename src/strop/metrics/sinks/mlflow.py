"""Logs to MLflow: to `MLFLOW_TRACKING_URI` where it is set, else to files in the run folder.

`mlflow-skinny` brings no database driver, so the local store is MLflow's file store, which it wants confirmed by
an environment variable.
"""

import os
import time

from strop.metrics.metric import Metrics, values
from strop.metrics.sinks.requirements import load_library
from strop.metrics.sinks.target import SinkTarget

FILE_STORE_SWITCH = "MLFLOW_ALLOW_FILE_STORE"


class MlflowSink:
    """Logs to one MLflow run; a resumed run continues as another run with the same `strop.run` tag."""

    def __init__(self, target: SinkTarget) -> None:
        mlflow = load_library("mlflow", "mlflow")
        self._entities = load_library("mlflow.entities", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri=tracking_uri(target))
        self._run_id = self._client.create_run(
            experiment_id=self._experiment_id(target.project),
            run_name=target.continuation_name,
            tags={"strop.run": target.run_name, "strop.run_folder": str(target.run_folder)},
        ).info.run_id

    def log(self, step: int, metrics: Metrics) -> None:
        """Logs every measured value at this step, in one request."""
        now_ms = int(time.time() * 1000)
        measured = [
            self._entities.Metric(name, value, now_ms, step)
            for name, value in values(metrics).items()
            if value is not None
        ]
        self._client.log_batch(self._run_id, metrics=measured)

    def close(self) -> None:
        """Marks the run as finished."""
        self._client.set_terminated(self._run_id)

    def _experiment_id(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        identifier: str = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        return identifier


def tracking_uri(target: SinkTarget) -> str:
    """Returns the configured store, else that of the run folder."""
    configured = os.environ.get("MLFLOW_TRACKING_URI")
    if configured:
        return configured
    os.environ.setdefault(FILE_STORE_SWITCH, "true")
    return (target.run_folder / "mlflow").absolute().as_uri()
