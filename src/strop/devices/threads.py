"""Threads of tensor work on the CPU, which every kind of device has beside its accelerator."""

import os

import torch

from strop.devices.environment import available_cores
from strop.errors import ConfigError


class CpuThreads:
    """Sets the threads of tensor work in this process."""

    def set_threads(self, threads: int = 0) -> int:
        """Sets the number of threads, 0 for every core that this process may use; returns the number.

        Raises ConfigError above the processors of the machine: thousands of threads end the process in OpenMP.
        """
        if threads < 0:
            raise ValueError(f"threads must be 0 or more, got {threads}")
        num_processors = os.cpu_count() or 1
        if threads > num_processors:
            raise ConfigError(
                f"run.threads must be at most the processors of this machine ({num_processors}), got {threads}",
                "Set it to 0, which takes every core that this process may use.",
            )
        number = threads or available_cores()
        torch.set_num_threads(number)
        return number
