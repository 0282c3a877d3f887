"""A file in shared memory through which weights go to vLLM's worker: written here, mapped there."""

import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from strop.records import WeightChunk
from strop.transfer import chunk_bytes

SHARED_MEMORY = Path("/dev/shm")
_ALIGNMENT = 64

Entry = tuple[str, str, list[int], int]
"""Name, type, shape, offset in bytes."""


class SharedFile:
    """A block of memory with a path; removed by `close`."""

    def __init__(self, num_bytes: int) -> None:
        """Makes a file of at least `num_bytes`; in the temporary folder where there is no shared memory."""
        folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        handle, self.path = tempfile.mkstemp(prefix="strop-weights-", dir=folder)
        self.num_bytes = max(num_bytes, 1)
        os.ftruncate(handle, self.num_bytes)
        self._map = mmap.mmap(handle, self.num_bytes)
        os.close(handle)

    def write(self, chunks: Sequence[WeightChunk]) -> list[Entry]:
        """Copies weights in, one behind the other, and returns where each lies."""
        entries: list[Entry] = []
        offset = 0
        block = torch.frombuffer(self._map, dtype=torch.uint8)
        for chunk in chunks:
            tensor = chunk.tensor.detach()
            num_bytes = chunk_bytes(chunk)
            target = block[offset : offset + num_bytes].view(tensor.dtype).view(tensor.shape)
            target.copy_(tensor)
            entries.append((chunk.name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), offset))
            offset += aligned(num_bytes)
        return entries

    def close(self) -> None:
        """Removes the file; its memory goes when nobody maps it any more."""
        Path(self.path).unlink(missing_ok=True)


def aligned(num_bytes: int) -> int:
    """Returns the room that a weight takes in the file."""
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def room(chunks: Sequence[WeightChunk]) -> int:
    """Returns the bytes that weights take in a file."""
    return sum(aligned(chunk_bytes(chunk)) for chunk in chunks)
