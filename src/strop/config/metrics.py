"""Where metrics go."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section


class MetricsConfig(Section):
    """Sinks beside the console and `metrics.jsonl`, which always run."""

    sinks: list[Literal["tensorboard", "wandb", "trackio", "mlflow"]] = Field(default_factory=list)
    """Further sinks; each needs its package."""
    project: str = "strop"
    """Project name in those sinks."""
    save_samples: bool = True
    """Stores every sample of every step in the run folder."""
    heartbeat_seconds: float = Field(default=30.0, gt=0)
    """Where there is no terminal, a line about the phase that runs is printed this often."""
