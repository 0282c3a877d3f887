"""Where the parts of a run live: in this process, or in many."""

from strop.cluster.interrupts import StopFlag, stop_on_interrupt, unless_stopped
from strop.cluster.local import LocalCluster, StallError

__all__ = ["LocalCluster", "StallError", "StopFlag", "stop_on_interrupt", "unless_stopped"]
