"""The order of events."""

from typing import Literal

from strop.config.base import Section


class TrainerConfig(Section):
    """The schedule."""

    schedule: Literal["sync"] = "sync"
    """sync: sample, then update, then publish."""
