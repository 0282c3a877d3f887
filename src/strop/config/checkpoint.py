"""What is kept on disk."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section


class CheckpointConfig(Section):
    """Checkpoints of the whole training state."""

    every: int = Field(default=10, ge=0)
    """Saves after every so many steps and at the end; 0 saves none."""
    keep: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept."""
    keep_best: str | None = None
    """Also keeps the checkpoint with the best value of this evaluation metric, such as `eval/sampled/accuracy`."""
    best_is: Literal["highest", "lowest"] = "highest"
    """Which value of `keep_best` is best."""
