"""Ends of transfers that die, stand still or never come: the other side learns it in bounded time."""

import asyncio
import functools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import torch

from strop.errors import SyncError
from strop.records import WeightChunk
from strop.transfer import DeliveryError, DrainingHalf, LocalChannel, SharedMemorySender, SplitTransfer
from support.hosted import Child, Pool
from support.softmax_policy import Sampler, Trainer
from support.transfers import KINDS, HostedSampler, HostedTrainer, sending_half

STREAMING = ("shared_memory", "broadcast")
ENGINES = {"one": Sampler(), "other": Sampler()}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.end()


@pytest.fixture
def children(pool: Pool) -> Iterator[Callable[[], Child]]:
    yield pool.take
    pool.give_back()


async def samplers(kind: str, child: Callable[[], Child], **faults: str) -> dict[str, Child]:
    hosted = {name: child() for name in ENGINES}
    for name, one in hosted.items():
        await one.make(functools.partial(HostedSampler, kind, faults.get(name, "")))
    return hosted


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 20
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def endless(folder: Path, kind: str) -> "tuple[functools.partial[HostedTrainer], int]":
    return functools.partial(HostedTrainer, kind, folder, 200, 0.01), 200


@pytest.mark.parametrize("kind", STREAMING)
def test_a_receiver_that_is_killed_is_named_and_the_others_are_free_again(
    kind: str, children: Callable[[], Child], tmp_path: Path
) -> None:
    async def run() -> None:
        hosted, trainer = await samplers(kind, children), children()
        make, num_tensors = endless(tmp_path, kind)
        await trainer.make(make)
        sending = asyncio.create_task(SplitTransfer(trainer, hosted).send(ENGINES, 0))
        await until(lambda: _has_made(trainer, 30))
        hosted["other"].kill()
        with pytest.raises(DeliveryError) as failure:
            await asyncio.wait_for(sending, 15)
        assert set(failure.value.failures) == {"other"}
        assert "its process has ended" in str(failure.value)
        assert await trainer.call("made") == num_tensors, "the stream of the trainer must be read to its end"
        assert set(await hosted["one"].call("weights")) > {"0"}, "the survivor must answer"

    asyncio.run(run())


async def _has_made(trainer: Child, number: int) -> bool:
    made: int = await trainer.call("made")
    return made >= number


@pytest.mark.parametrize("kind", STREAMING)
def test_a_trainer_that_is_killed_frees_its_receivers_at_once(
    kind: str, children: Callable[[], Child], tmp_path: Path
) -> None:
    async def run() -> None:
        hosted, trainer = await samplers(kind, children), children()
        await trainer.make(endless(tmp_path, kind)[0])
        address = await trainer.call("open_stream", tuple(hosted))
        sending = asyncio.create_task(trainer.call("send_stream", 0, 1.0))
        receiving = [asyncio.create_task(one.call("receive_stream", address, name, 0)) for name, one in hosted.items()]
        await until(lambda: _has_made(trainer, 30))
        trainer.kill()
        answers = await asyncio.wait_for(asyncio.gather(*receiving, return_exceptions=True), 8)
        assert all(isinstance(one, SyncError) and "went away" in str(one) for one in answers)
        with pytest.raises(ConnectionError):
            await sending

    asyncio.run(run())


def test_a_receiver_that_stands_still_is_named_after_the_time_limit(
    children: Callable[[], Child], tmp_path: Path
) -> None:
    async def run() -> None:
        hosted = await samplers("shared_memory", children, other="hangs")
        half = sending_half("shared_memory", tmp_path, Trainer().export_weights, timeout_seconds=0.5)
        transfer = SplitTransfer(LocalChannel(half), hosted, grace_seconds=0.2)
        with pytest.raises(SyncError, match=r"other must take a bucket of weights within 0.5 s, it did not"):
            await asyncio.wait_for(transfer.send(ENGINES, 0), 15)
        hosted["other"].kill()

    asyncio.run(run())


@pytest.mark.parametrize("kind", STREAMING)
def test_a_receiver_that_never_comes_is_named_after_the_time_limit(kind: str, tmp_path: Path) -> None:
    class Absent:
        async def receive_stream(self, address: object, name: str, version: int) -> None:
            await asyncio.Event().wait()

    half = sending_half(kind, tmp_path, Trainer().export_weights, timeout_seconds=0.3)
    transfer = SplitTransfer(LocalChannel(half), {"one": LocalChannel(Absent())}, grace_seconds=0.2)
    with pytest.raises(SyncError, match=r"one must (ask for the weights|join the broadcast) within 0.3 s"):
        asyncio.run(asyncio.wait_for(transfer.send({"one": Sampler()}, 0), 15))


def test_a_receiver_without_a_channel_is_refused_by_name(tmp_path: Path) -> None:
    half = sending_half("disk", tmp_path, Trainer().export_weights)
    with pytest.raises(ValueError, match=r"each receiver must have a channel.*without \['one'\]"):
        asyncio.run(SplitTransfer(LocalChannel(half), {}).send({"one": Sampler()}, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_the_trainer_s_stream_is_told_as_its_own(
    kind: str, children: Callable[[], Child], tmp_path: Path
) -> None:
    def stream() -> Iterator[WeightChunk]:
        yield WeightChunk("a", torch.zeros(300), 0)
        raise ZeroDivisionError("no such weight")

    async def run() -> None:
        hosted = await samplers(kind, children)
        transfer = SplitTransfer(LocalChannel(sending_half(kind, tmp_path, stream)), hosted)
        with pytest.raises(SyncError, match="could not send its weights: ZeroDivisionError: no such weight"):
            await asyncio.wait_for(transfer.send(ENGINES, 0), 15)

    asyncio.run(run())


# ------------------------------------------------------------------------------------------- shared memory


def test_extra_memory_is_the_buckets_however_large_the_model_is(tmp_path: Path) -> None:
    sender = SharedMemorySender(Trainer().export_weights, bucket_bytes=1 << 20, num_buckets=3)
    memory, descriptor = sender._mapped()
    assert os.fstat(descriptor).st_size == 3 << 20
    assert memory.bucket(4).data_ptr() == memory.bucket(1).data_ptr()
    assert sender._mapped()[0] is memory, "the memory stays for the next publication"


@pytest.mark.parametrize(("num_buckets", "bucket_bytes"), [(1, 100), (2, 0)])
def test_one_bucket_or_empty_ones_are_refused(num_buckets: int, bucket_bytes: int) -> None:
    with pytest.raises(ValueError, match="at least 2 buckets of a byte"):
        SharedMemorySender(Trainer().export_weights, num_buckets=num_buckets, bucket_bytes=bucket_bytes)


def test_a_slow_receiver_slows_the_sender_down(children: Callable[[], Child], tmp_path: Path) -> None:
    """Back-pressure: the sender is never more than its buckets ahead."""
    asked: list[int] = []

    def stream() -> Iterator[WeightChunk]:
        for index in range(10):
            asked.append(index)
            yield WeightChunk("body" if index == 2 else str(index), torch.zeros(100), 0)

    async def run() -> None:
        hosted = {"one": children()}
        await hosted["one"].make(functools.partial(HostedSampler, "shared_memory", "hangs"))
        half = sending_half("shared_memory", tmp_path, stream, timeout_seconds=1.0)
        transfer = SplitTransfer(LocalChannel(half), hosted, grace_seconds=0.2)
        sending = asyncio.create_task(transfer.send({"one": Sampler()}, 0))
        await asyncio.sleep(0.7)
        assert 3 <= len(asked) <= 2 + 2 + 1
        with pytest.raises(SyncError):
            await sending
        hosted["one"].kill()

    asyncio.run(run())


def test_another_machine_is_told_to_use_another_transfer() -> None:
    async def run() -> None:
        half = HostedSampler("shared_memory")
        await half.receive_stream({"socket": "/nowhere/weights", "timeout_seconds": 1}, "one", 0)

    with pytest.raises(SyncError, match=r"needs sampler and trainer on one machine(.|\n)*Use another transfer"):
        asyncio.run(run())


# ------------------------------------------------------------------------------------------- disk


def test_leftovers_of_a_killed_run_are_removed_and_nothing_stays_behind(
    children: Callable[[], Child], tmp_path: Path
) -> None:
    (tmp_path / "weights-old.partial").mkdir()
    (tmp_path / "weights-older").mkdir()
    (tmp_path / "mine").mkdir()

    async def run() -> None:
        hosted = await samplers("disk", children)
        half = sending_half("disk", tmp_path, Trainer().export_weights)
        assert [one.name for one in tmp_path.iterdir()] == ["mine"]
        await SplitTransfer(LocalChannel(half), hosted).send(ENGINES, 0)
        assert [one.name for one in tmp_path.iterdir()] == ["mine"]

    asyncio.run(run())


def test_a_disk_that_cannot_be_written_is_an_error_with_a_remedy(children: Callable[[], Child], tmp_path: Path) -> None:
    async def run() -> None:
        hosted = await samplers("disk", children)
        half = sending_half("disk", tmp_path / "there", Trainer().export_weights)
        (tmp_path / "there").rmdir()
        (tmp_path / "there").write_text("in the way")
        await SplitTransfer(LocalChannel(half), hosted).send(ENGINES, 0)

    with pytest.raises(SyncError, match=r"weights must fit into .*(.|\n)*Make room there"):
        asyncio.run(run())


# ------------------------------------------------------------------------------------------- other ranks


def test_a_rank_that_sends_nothing_reads_its_stream_to_the_end() -> None:
    seen: list[str] = []

    def stream() -> Iterator[WeightChunk]:
        for chunk in Trainer().export_weights():
            seen.append(chunk.name)
            yield chunk

    half = DrainingHalf(stream)
    assert half.send_stream(4, 1.0).names == ()
    assert seen == ["embedding", "body", "head"]
