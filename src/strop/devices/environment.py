"""Environment variables that must be set before torch loads its OpenMP library. Never imports torch.

Two threads that share two cores with any other process wait for each other at every operation. GNU OpenMP lets
them spin meanwhile, which keeps the core from the one that is waited for. Measured on two cores, milliseconds for
60 matrix products of a decode step at batch 16 (576 x 1536): alone 20 spinning and 24 sleeping; beside one busy
process 430 to 800 spinning and 38 sleeping, and shorter spinning lies between. Large products, alone: 92 either
way. So threads sleep; who has the machine for a single process sets OMP_WAIT_POLICY=ACTIVE.
"""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """What was done to the environment of this process and its children."""

    added: Mapping[str, str]
    """Variables that were unset."""
    kept: Mapping[str, str]
    """Variables that the user had set otherwise."""
    in_time: bool
    """False where torch was loaded already: this process keeps its settings, only children see the new ones."""


def prepare_environment(threads: int = 0) -> PreparedEnvironment:
    """Sets thread variables that are unset; call it before torch is imported. 0 takes every core."""
    wanted = {
        "OMP_NUM_THREADS": str(threads or available_cores()),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    kept = {name: os.environ[name] for name, value in wanted.items() if os.environ.get(name, value) != value}
    os.environ.update(added)
    return PreparedEnvironment(added, kept, in_time="torch" not in sys.modules)


def available_cores(quota_file: Path = CGROUP_QUOTA) -> int:
    """Returns the cores that this process may use: its affinity, bounded by the quota of its container."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = _quota_cores(quota_file)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota_cores(quota_file: Path) -> float | None:
    if not quota_file.exists():
        return None
    quota, period = quota_file.read_text().split()
    return None if quota == "max" else int(quota) / int(period)
