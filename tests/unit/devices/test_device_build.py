"""A device that is not there is refused with those that are."""

import pytest
import torch

from strop.devices import build_device
from strop.devices.build import available_devices
from strop.devices.cpu import CpuDevice
from strop.errors import ConfigError


def test_the_cpu_is_always_there_and_comes_last() -> None:
    assert available_devices()[-1] == "cpu"
    assert isinstance(build_device("cpu"), CpuDevice)


def test_auto_takes_the_first_device_that_is_there() -> None:
    assert build_device("auto").name == available_devices()[0]


@pytest.mark.parametrize("name", ["cuda", "rocm", "npu"])
def test_a_missing_accelerator_is_refused_with_a_remedy(name: str) -> None:
    if name in available_devices():
        pytest.skip(f"this machine has {name}")
    with pytest.raises(ConfigError, match=rf"run\.device is {name}") as refusal:
        build_device(name)
    assert refusal.value.remedy


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="auto, cpu, cuda, rocm, npu, got 'tpu'"):
        build_device("tpu")


def test_threads_are_set_and_a_negative_number_is_refused() -> None:
    device, before = build_device("cpu"), torch.get_num_threads()
    try:
        assert device.set_threads(1) == torch.get_num_threads() == 1
        assert device.set_threads(0) >= 1
    finally:
        torch.set_num_threads(before)
    with pytest.raises(ValueError, match="got -1"):
        device.set_threads(-1)


def test_the_resident_size_is_at_most_its_peak() -> None:
    device = CpuDevice()
    assert 0 < device.memory_bytes() <= device.peak_memory_bytes()


def test_more_threads_than_the_machine_has_processors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"run\.threads must be at most the processors of this machine"):
        build_device("cpu").set_threads(100_000)
