"""Weights through a folder that trainer and engines both reach: slow, but it works wherever files do.

    trainer                                                 engine
    weights-3-<random>.partial/00000.safetensors ...
    renamed to weights-3-<random>/        ----address---->  reads file after file, chunk after chunk
    removed                               <----closed-----

The folder is whole or absent under its final name. Files hold at most a bucket, except where one tensor is larger.
What an earlier run left behind in the same folder is removed when the sender is made.
"""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from strop.errors import SyncError
from strop.protocols import RolloutEngine
from strop.records import WeightChunk, WeightReceipt
from strop.transfer.buckets import buckets
from strop.transfer.errors import TransferBrokenError
from strop.transfer.sending import DEFAULT_BUCKET_BYTES, DEFAULT_TIMEOUT_SECONDS, WeightOutlet
from strop.transfer.source import Weights
from strop.transfer.split import Address

_PREFIX = "weights-"
_PARTIAL = ".partial"
_INDEX_NAME = "index.json"
_LOOK_SECONDS = 0.02


class DiskSender:
    """Implements `transfer.SendingHalf`."""

    def __init__(
        self,
        weights: Weights,
        folder: Path,
        dtype: torch.dtype | None = None,
        *,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    ) -> None:
        """Takes the trainer's stream and a folder that no other run uses; leftovers in it are removed."""
        self._outlet = WeightOutlet(weights, dtype)
        self._folder = folder
        self._bucket_bytes = bucket_bytes
        self._open: Path | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{_PREFIX}*"):
            shutil.rmtree(leftover)

    def open_stream(self, names: Sequence[str]) -> Address:
        """Chooses where the files will lie."""
        with self._told_of_disk():
            self._open = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_PARTIAL, dir=self._folder))
        return {"type": "disk", "folder": str(self._whole(self._open).resolve())}

    def send_stream(self, version: int, scale: float) -> WeightReceipt:
        """Writes all weights and lets them appear at once; removes them where that fails."""
        if self._open is None:
            raise SyncError("a stream must be opened before it is sent")
        partial, whole = self._open, self._whole(self._open)
        with self._told_of_disk(), self._outlet.opened(version, scale) as (chunks, account):
            names = [
                _write(partial / f"{index:05}.safetensors", bucket)
                for index, bucket in enumerate(buckets(chunks, self._bucket_bytes))
            ]
            (partial / _INDEX_NAME).write_text(json.dumps(names), encoding="utf-8")
            partial.rename(whole)
            return account.receipt(version)

    @contextmanager
    def _told_of_disk(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise SyncError(
                f"weights must fit into {self._folder}, writing them failed: {error}",
                "Make room there, or use a transfer that needs no disk.",
            ) from error

    async def close_stream(self) -> None:
        """Removes the files."""
        partial, self._open = self._open, None
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(self._whole(partial), ignore_errors=True)

    def _whole(self, partial: Path) -> Path:
        return partial.with_suffix("")


def _write(path: Path, bucket: Sequence[WeightChunk]) -> list[str]:
    """Writes one file, tensors under their place in the order; returns their names."""
    save_file({str(place): chunk.tensor.detach().contiguous() for place, chunk in enumerate(bucket)}, path)
    return [chunk.name for chunk in bucket]


class DiskReceiver:
    """Implements `transfer.ReceivingHalf`; tensors lie in mapped files, one file at a time."""

    def __init__(self, engine: RolloutEngine, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Takes the engine; `timeout_seconds` bounds how long the trainer may take to write all files."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds

    async def receive_stream(self, address: Address, name: str, version: int) -> WeightReceipt:
        """Waits until the folder at `address` is whole and reads it."""
        folder = Path(address["folder"])
        await self._appearance(folder)
        return await self._engine.receive_weights(_chunks(folder, version), version)

    async def _appearance(self, folder: Path) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        partial = folder.with_suffix(_PARTIAL)
        while not folder.exists():
            if not partial.exists() and not folder.exists():
                raise TransferBrokenError(f"{folder} must appear, the trainer gave it up or this machine cannot see it")
            if time.monotonic() > deadline:
                raise TransferBrokenError(f"{folder} must appear within {self._timeout_seconds:g} s, it did not")
            await asyncio.sleep(_LOOK_SECONDS)


def _chunks(folder: Path, version: int) -> Iterator[WeightChunk]:
    try:
        for index, names in enumerate(json.loads((folder / _INDEX_NAME).read_text(encoding="utf-8"))):
            with safe_open(folder / f"{index:05}.safetensors", framework="pt") as file:
                for place, name in enumerate(names):
                    yield WeightChunk(name, file.get_tensor(str(place)), version)
    except (OSError, SafetensorError) as error:
        if (folder / _INDEX_NAME).exists():
            raise
        raise TransferBrokenError(f"the trainer gave {folder} up while it was read: {error}") from error
