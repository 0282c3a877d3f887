"""Threads of tensor work on the CPU, which every kind of device has beside its accelerator."""

import torch

from strop.devices.environment import available_cores


class CpuThreads:
    """Sets the threads of tensor work in this process."""

    def set_threads(self, threads: int = 0) -> int:
        """Sets the number of threads, 0 for every core that this process may use; returns the number."""
        if threads < 0:
            raise ValueError(f"threads must be 0 or more, got {threads}")
        number = threads or available_cores()
        torch.set_num_threads(number)
        return number
