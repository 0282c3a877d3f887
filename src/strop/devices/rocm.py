"""AMD GPUs: torch built for ROCm answers to `torch.cuda`, and tells itself apart by `torch.version.hip`."""

import torch

from strop.devices.cuda import CudaDevice


class RocmDevice(CudaDevice):
    """The current ROCm device of this process; its collectives library calls itself nccl too."""

    name = "rocm"


def rocm_is_available() -> bool:
    """Whether torch is built for ROCm and sees a device."""
    return torch.version.hip is not None and torch.cuda.is_available()
