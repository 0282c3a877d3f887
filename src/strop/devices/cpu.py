"""The processor itself as a device."""

import resource
import sys
from pathlib import Path

import torch

from strop.devices.allocator import trim_heap
from strop.devices.threads import CpuThreads

STATUS_FILE = Path("/proc/self/status")


class CpuDevice(CpuThreads):
    """Tensors in main memory; memory is the resident set of this process."""

    name = "cpu"
    collective_backend = "gloo"

    @property
    def torch_device(self) -> torch.device:
        """Main memory."""
        return torch.device("cpu")

    def synchronize(self) -> None:
        """Returns at once: work on a CPU is done when it is called."""

    def empty_cache(self) -> None:
        """Gives freed heap memory back to the system, where the C library can."""
        trim_heap()

    def memory_bytes(self) -> int:
        """Resident memory of this process now, in bytes; its peak where the system does not tell."""
        return _status_bytes("VmRSS") or self.peak_memory_bytes()

    def peak_memory_bytes(self) -> int:
        """Peak resident memory of this process since it started, in bytes."""
        return _status_bytes("VmHWM") or _peak_of_resource()


def _status_bytes(field: str) -> int | None:
    if not STATUS_FILE.exists():
        return None
    for line in STATUS_FILE.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def _peak_of_resource() -> int:
    """Reads getrusage, whose unit is bytes on macOS and kibibytes elsewhere."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
