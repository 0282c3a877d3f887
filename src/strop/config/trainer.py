"""The order of events, and where they happen."""

from typing import Literal

from strop.config.base import Section


class TrainerConfig(Section):
    """The schedule and the cluster."""

    schedule: Literal["sync"] = "sync"
    """sync: sample, then update, then publish."""
    cluster: Literal["local"] = "local"
    """local: everything in this process."""
