"""A file in shared memory through which weights go to vLLM's worker: written here, mapped there."""

import mmap
import os
import tempfile
from pathlib import Path

import torch

from strop.records import WeightChunk
from strop.transfer import chunk_bytes

SHARED_MEMORY = Path("/dev/shm")
_ALIGNMENT = 64

Entry = tuple[str, str, list[int], int]
"""Name, type, shape, offset in bytes."""


class SharedFile:
    """A bucket of weights, one behind the other, in memory that has a path; removed by `close`."""

    def __init__(self, num_bytes: int) -> None:
        """Makes a file of `num_bytes`; in the temporary folder where there is no shared memory."""
        folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        handle, self.path = tempfile.mkstemp(prefix="strop-weights-", dir=folder)
        self.num_bytes = max(num_bytes, 1)
        os.ftruncate(handle, self.num_bytes)
        self._block = torch.frombuffer(mmap.mmap(handle, self.num_bytes), dtype=torch.uint8)
        os.close(handle)
        self.entries: list[Entry] = []
        """Where each weight lies."""
        self._end = 0

    def has_room(self, chunk: WeightChunk) -> bool:
        """Whether a weight fits behind those that are there."""
        return self._end + chunk_bytes(chunk) <= self.num_bytes

    def add(self, chunk: WeightChunk) -> None:
        """Copies a weight in; its own memory may be used for something else afterwards."""
        tensor, num_bytes = chunk.tensor.detach(), chunk_bytes(chunk)
        target = self._block[self._end : self._end + num_bytes].view(tensor.dtype).view(tensor.shape)
        target.copy_(tensor)
        self.entries.append((chunk.name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), self._end))
        self._end += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT

    def empty(self) -> None:
        """Makes room again."""
        self.entries = []
        self._end = 0

    def close(self) -> None:
        """Removes the file; its memory goes when nobody maps it any more."""
        Path(self.path).unlink(missing_ok=True)
