"""NVIDIA GPUs through `torch.cuda`."""

import torch

from strop.devices.threads import CpuThreads


class CudaDevice(CpuThreads):
    """The current CUDA device of this process."""

    name = "cuda"
    collective_backend = "nccl"

    @property
    def torch_device(self) -> torch.device:
        """The current device."""
        return torch.device("cuda", torch.cuda.current_device())

    def synchronize(self) -> None:
        """Waits until all queued kernels are done."""
        torch.cuda.synchronize()

    def empty_cache(self) -> None:
        """Gives cached blocks that hold nothing back to the driver."""
        torch.cuda.empty_cache()

    def memory_bytes(self) -> int:
        """Memory that torch holds on the device now, cached blocks included, in bytes."""
        return torch.cuda.memory_reserved()

    def peak_memory_bytes(self) -> int:
        """Peak memory that torch held on the device, cached blocks included, in bytes."""
        return torch.cuda.max_memory_reserved()


def cuda_is_available() -> bool:
    """Whether torch is built for CUDA and sees a device."""
    return torch.version.hip is None and torch.cuda.is_available()
