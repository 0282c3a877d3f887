"""Environment variables that must be set before torch loads its OpenMP library. Never imports torch.

Two threads that share two cores with any other process wait for each other at every operation. How GNU OpenMP lets
them wait decides much: a thread that spins keeps the core from the one that is waited for, a thread that sleeps must
be woken. Measured on two cores, milliseconds for 60 rounds of a matrix product (32 x 576 x 576) and two elementwise
operations:

    waiting                        alone    beside 1 busy process    beside 2
    sleeps at once                  13.0            12.5               24.2
    spins   1,000 rounds first       8.5            14.7               14.9
    spins   3,000 rounds first       6.7            18.5               15.4
    spins  20,000 rounds first       6.7            48.3               49.9
    always spins                     6.3            15.6 (178 at most) 41.4 (960 at most)

So threads spin for a moment and then sleep. Who has the machine for a single process may set OMP_WAIT_POLICY=ACTIVE.
"""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SPIN_ROUNDS: Final = "3000"
"""How long a thread of GNU OpenMP spins before it sleeps; it counts under OMP_WAIT_POLICY=PASSIVE too."""
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
    wanted = {"OMP_NUM_THREADS": str(threads or available_cores()), "OMP_WAIT_POLICY": "PASSIVE"}
    if os.environ.get("OMP_WAIT_POLICY", "PASSIVE") == "PASSIVE":
        wanted["GOMP_SPINCOUNT"] = SPIN_ROUNDS  # it would overrule a policy that the user chose
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
