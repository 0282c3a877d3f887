"""The ends of transfers, with samplers of three tensors that can be broken on purpose."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from strop.records import WeightChunk, WeightReceipt
from strop.transfer import (
    BroadcastReceiver,
    BroadcastSender,
    DiskReceiver,
    DiskSender,
    ReceivingHalf,
    SendingHalf,
    SharedMemoryReceiver,
    SharedMemorySender,
)
from support.softmax_policy import Sampler

KINDS = ("shared_memory", "broadcast", "disk")
BUCKET_BYTES = 400
"""Smaller than two of the three tensors."""


def sending_half(
    kind: str,
    folder: Path,
    weights: Callable[[], Iterator[WeightChunk]],
    dtype: torch.dtype | None = None,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    timeout_seconds: float = 20.0,
) -> SendingHalf:
    """Makes the trainer's end."""
    match kind:
        case "shared_memory":
            return SharedMemorySender(weights, dtype, bucket_bytes=bucket_bytes, timeout_seconds=timeout_seconds)
        case "broadcast":
            return BroadcastSender(
                weights, dtype, bucket_bytes=bucket_bytes, host="127.0.0.1", timeout_seconds=timeout_seconds
            )
        case "disk":
            return DiskSender(weights, folder, dtype, bucket_bytes=bucket_bytes)
    raise ValueError(kind)


class Faulty(Sampler):
    """Takes weights as it is told to."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        if self.fault == "fails before":
            raise ConnectionError("the worker is gone")
        return await super().receive_weights(chunks, version)

    def take(self, chunk: WeightChunk) -> None:
        if chunk.name == "body" and self.fault == "fails":
            raise ConnectionError("the worker is gone")
        if chunk.name == "body" and self.fault == "hangs":
            time.sleep(3600)
        super().take(chunk)


class HostedSampler:
    """A sampler and an engine's end of a transfer; the object that a process hosts."""

    def __init__(self, kind: str, fault: str = "", *, lend: bool = False) -> None:
        self.sampler = Faulty(fault)
        self._half = self._receiving_half(kind, lend)

    async def receive_stream(self, address: dict[str, Any], name: str, version: int) -> WeightReceipt:
        return await self._half.receive_stream(address, name, version)

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.sampler.weights.items()}

    def _receiving_half(self, kind: str, lend: bool) -> ReceivingHalf:
        match kind:
            case "shared_memory":
                return SharedMemoryReceiver(self.sampler, lend=lend)
            case "broadcast":
                return BroadcastReceiver(self.sampler, lend=lend)
            case "disk":
                return DiskReceiver(self.sampler, timeout_seconds=20)
        raise ValueError(kind)


class HostedTrainer:
    """A stream of zeros and the trainer's end of a transfer; the object that a process hosts."""

    def __init__(self, kind: str, folder: Path, num_tensors: int, seconds_a_tensor: float = 0.0) -> None:
        self._num_tensors, self._seconds = num_tensors, seconds_a_tensor
        self.num_made = 0
        half = sending_half(kind, folder, self._stream)
        self.open_stream, self._send, self._close = half.open_stream, half.send_stream, half.close_stream

    def send_stream(self, version: int, scale: float) -> WeightReceipt:
        return self._send(version, scale)

    async def close_stream(self) -> None:
        await self._close()

    async def made(self) -> int:
        """How many tensors were asked for."""
        return self.num_made

    def _stream(self) -> Iterator[WeightChunk]:
        for index in range(self._num_tensors):
            self.num_made += 1
            time.sleep(self._seconds)
            yield WeightChunk(str(index), torch.zeros(64), 0)
