"""What this package reads from its config section.

`config` and `metrics` stand on one line of the house and do not import each other, so the section is described
by its shape; `strop.config.metrics.MetricsConfig` fits it.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

SinkName = Literal["tensorboard", "wandb", "trackio", "mlflow"]


class SinkSettings(Protocol):
    """Which sinks run beside the console and `metrics.jsonl`."""

    @property
    def sinks(self) -> Sequence[SinkName]:
        """Names of further sinks."""

    @property
    def project(self) -> str:
        """Project name in those sinks."""


class ConsoleSettings(Protocol):
    """How the console reports."""

    @property
    def heartbeat_seconds(self) -> float:
        """Silence after which a line about the running phase is printed, where there is no terminal."""
