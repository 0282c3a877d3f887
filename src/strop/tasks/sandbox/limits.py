"""What one run of an untrusted program may use, and how it is held."""

from dataclasses import dataclass
from enum import StrEnum


class SandboxLevel(StrEnum):
    """What holds the program; docs/sandbox.md says which does what."""

    NAMESPACES = "namespaces"
    """Own mounts, processes, network and users, no capabilities, a filter of system calls, and Landlock if known."""
    LANDLOCK = "landlock"
    """Landlock and a filter of system calls: nothing can be written, no threads for the superuser."""
    NONE = "none"
    """Limits of time, memory and output alone: no isolation."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one run."""

    wall_seconds: float = 6.0
    cpu_seconds: int = 6
    """Whole seconds of processor time, of all threads together."""
    memory_bytes: int = 2**30
    """Address space."""
    output_bytes: int = 2**22
    """Of what it prints, of what a function returns, and of each file that it writes."""
    scratch_bytes: int = 2**26
    """Of all files in /tmp together."""
    num_threads: int = 64
