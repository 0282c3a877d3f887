"""Every device that this machine has keeps the promises of the protocol."""

import pytest
import torch

from strop.devices import build_device
from strop.devices.build import available_devices
from strop.protocols import Device

KERNEL_COUNTING_BYTES = 4 << 20
"""Linux adds up the resident pages of its cores only now and then."""


@pytest.fixture(params=["auto", "cpu", "cuda", "rocm", "npu"])
def device(request: pytest.FixtureRequest) -> Device:
    if request.param not in ("auto", *available_devices()):
        pytest.skip(f"this process sees no {request.param}")
    return build_device(request.param)


def test_tensors_live_on_the_device_that_it_names(device: Device) -> None:
    tensor = torch.ones(3, device=device.torch_device)
    assert tensor.device == device.torch_device
    assert tensor.sum().item() == 3


def test_peak_memory_rises_with_an_allocation_and_never_falls(device: Device) -> None:
    block_bytes = 64 << 20
    before = device.peak_memory_bytes()
    kept = [torch.ones(block_bytes // 4, device=device.torch_device)]
    while device.peak_memory_bytes() < before + block_bytes // 2 and len(kept) < 100:
        kept.append(torch.ones(block_bytes // 4, device=device.torch_device))
    device.synchronize()
    raised = device.peak_memory_bytes()
    assert raised >= before + block_bytes // 2
    kept.clear()
    device.empty_cache()
    assert device.peak_memory_bytes() >= raised - KERNEL_COUNTING_BYTES


def test_the_backend_for_collectives_is_known_to_torch(device: Device) -> None:
    assert device.collective_backend in torch.distributed.Backend.backend_list
