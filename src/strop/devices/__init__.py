"""Kinds of accelerators behind one small interface: the only place that may say `torch.cuda` or `torch.npu`.

Importing this package does not import torch, so that `devices.environment` can run before torch does.
"""

from typing import TYPE_CHECKING

from strop.devices.environment import PreparedEnvironment, available_cores, prepare_environment

if TYPE_CHECKING:
    from strop.devices.build import AnyDevice


def build_device(name: str) -> "AnyDevice":
    """Returns the device of that name; see `strop.devices.build`."""
    from strop.devices import build

    return build.build_device(name)


__all__ = ["PreparedEnvironment", "available_cores", "build_device", "prepare_environment"]
