"""Freed heap memory can be given back to the system."""

import platform

import pytest

from strop.devices.allocator import trim_heap
from strop.devices.cpu import CpuDevice


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_trimming_gives_freed_memory_back() -> None:
    blocks = [bytearray(64 << 10) for _ in range(1024)]
    last = blocks.pop()
    full = CpuDevice().memory_bytes()
    blocks.clear()
    trim_heap()
    assert full - CpuDevice().memory_bytes() > 32 << 20
    assert len(last) == 64 << 10
