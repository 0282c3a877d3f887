"""Huawei Ascend NPUs through `torch_npu`, which adds `torch.npu`."""

import importlib
import importlib.util
from typing import Any

import torch

from strop.devices.threads import CpuThreads
from strop.errors import ConfigError


class NpuDevice(CpuThreads):
    """The current NPU of this process. Raises ConfigError where `torch_npu` is not installed."""

    name = "npu"
    collective_backend = "hccl"

    def __init__(self) -> None:
        if importlib.util.find_spec("torch_npu") is None:
            raise ConfigError(
                "run.device is npu, which needs the package torch_npu, and that is not installed",
                f"Install the torch_npu release that belongs to torch {torch.__version__}.",
            )
        self._npu: Any = importlib.import_module("torch_npu").npu

    @property
    def torch_device(self) -> torch.device:
        """The current device."""
        return torch.device("npu", self._npu.current_device())

    def synchronize(self) -> None:
        """Waits until all queued kernels are done."""
        self._npu.synchronize()

    def empty_cache(self) -> None:
        """Gives cached blocks that hold nothing back to the driver."""
        self._npu.empty_cache()

    def memory_bytes(self) -> int:
        """Memory that torch holds on the device now, cached blocks included, in bytes."""
        return int(self._npu.memory_reserved())

    def peak_memory_bytes(self) -> int:
        """Peak memory that torch held on the device, cached blocks included, in bytes."""
        return int(self._npu.max_memory_reserved())


def npu_is_available() -> bool:
    """Whether `torch_npu` is installed and sees a device."""
    if importlib.util.find_spec("torch_npu") is None:
        return False
    return bool(importlib.import_module("torch_npu").npu.is_available())
