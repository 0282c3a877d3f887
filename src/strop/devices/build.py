"""Builds the device that the configuration names."""

from strop.devices.cpu import CpuDevice
from strop.devices.cuda import CudaDevice, cuda_is_available
from strop.devices.npu import NpuDevice, npu_is_available
from strop.devices.rocm import RocmDevice, rocm_is_available
from strop.errors import ConfigError

AnyDevice = CpuDevice | CudaDevice | NpuDevice
NAMES = ("auto", "cpu", "cuda", "rocm", "npu")


def build_device(name: str) -> AnyDevice:
    """Returns the device of that name; `auto` takes an accelerator where there is one, else the CPU.

    Raises ConfigError for an unknown name, and where the device is not there, naming those that are.
    """
    match name:
        case "auto":
            return build_device(available_devices()[0])
        case "cpu":
            return CpuDevice()
        case "cuda":
            _require(name)
            return CudaDevice()
        case "rocm":
            _require(name)
            return RocmDevice()
        case "npu":
            device = NpuDevice()
            _require(name)
            return device
    raise ConfigError(f"run.device must be one of {', '.join(NAMES)}, got {name!r}")


def available_devices() -> list[str]:
    """Returns the names of the devices that this process can use, accelerators first."""
    found = {"cuda": cuda_is_available(), "rocm": rocm_is_available(), "npu": npu_is_available(), "cpu": True}
    return [name for name, is_available in found.items() if is_available]


def _require(name: str) -> None:
    if name not in available_devices():
        raise ConfigError(
            f"run.device is {name}, but this process sees no such device, only {', '.join(available_devices())}",
            "Take one of these, or install a torch that is built for it.",
        )
