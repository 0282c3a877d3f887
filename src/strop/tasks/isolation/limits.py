"""What a call may use."""

import os
from dataclasses import dataclass

_MOST_PROCESSES = 4


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one call, and how many run at once."""

    timeout_seconds: float = 60.0
    memory_bytes: int = 8 * 2**30
    """Private memory of the process that runs the call."""
    num_processes: int = 1


def default_processes() -> int:
    """A process a core that this process may use, at most four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return min(_MOST_PROCESSES, cores)
