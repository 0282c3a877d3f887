"""What every weight transfer must keep to, and the books that are kept of it."""

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from strop.errors import SyncError
from strop.protocols import WeightTransfer
from strop.records import WeightChunk, WeightReceipt
from strop.transfer import (
    DeliveryError,
    InProcessTransfer,
    LocalChannel,
    SendingAccount,
    SplitTransfer,
    buckets,
    discrepancies,
    weight_checksum,
)
from support.hosted import Child
from support.softmax_policy import Sampler, Trainer
from support.transfers import KINDS, Faulty, HostedSampler, sending_half

Weights = Callable[[], Iterator[WeightChunk]]
Held = dict[str, torch.Tensor]
BOTH = ("one", "other")


class InProcess:
    """Two samplers in this process."""

    def __init__(self) -> None:
        self.samplers = {name: Faulty() for name in BOTH}

    async def break_down(self, name: str, fault: str) -> None:
        self.samplers[name] = Faulty(fault)

    def transfer(self, weights: Weights, dtype: torch.dtype | None = None) -> WeightTransfer:
        return InProcessTransfer(weights, dtype)

    async def held(self, name: str) -> Held:
        return self.samplers[name].weights


class Split:
    """Two samplers in processes of their own."""

    def __init__(self, kind: str, children: dict[str, Child], folder: Path) -> None:
        self.kind, self._children, self._folder = kind, children, folder
        self.samplers = {name: Sampler() for name in BOTH}
        """Stand for those elsewhere; they must not be touched."""
        for name in BOTH:
            asyncio.run(self.break_down(name, ""))

    async def break_down(self, name: str, fault: str) -> None:
        await self._children[name].make(functools.partial(HostedSampler, self.kind, fault))

    def transfer(self, weights: Weights, dtype: torch.dtype | None = None) -> WeightTransfer:
        return SplitTransfer(LocalChannel(sending_half(self.kind, self._folder, weights, dtype)), self._children)

    async def held(self, name: str) -> Held:
        return await self._children[name].call("weights")


@pytest.fixture(scope="module")
def children() -> Iterator[dict[str, Child]]:
    children = {name: Child() for name in BOTH}
    yield children
    for child in children.values():
        child.end()


@pytest.fixture(params=("in_process", *KINDS))
def rig(request: pytest.FixtureRequest, children: dict[str, Child], tmp_path: Path) -> InProcess | Split:
    return InProcess() if request.param == "in_process" else Split(request.param, children, tmp_path)


def test_every_receiver_holds_what_was_sent_and_the_books_balance(rig: InProcess | Split) -> None:
    trainer = Trainer()

    async def send() -> None:
        books = await rig.transfer(trainer.export_weights).send(rig.samplers, 0)
        assert set(books) == set(BOTH)
        for name, (sent, received) in books.items():
            held = await rig.held(name)
            assert all(torch.equal(trainer.weights[weight], held[weight]) for weight in trainer.weights)
            assert sent.names == tuple(trainer.weights)
            assert discrepancies(sent, received) == []

    asyncio.run(send())


def test_one_transfer_sends_version_after_version_to_whom_it_is_told(rig: InProcess | Split) -> None:
    trainer = Trainer()

    async def send() -> None:
        transfer = rig.transfer(trainer.export_weights)
        for version, names in enumerate((BOTH, BOTH[1:], BOTH)):
            books = await transfer.send({name: rig.samplers[name] for name in names}, version)
            assert {name: (sent.version, discrepancies(sent, got)) for name, (sent, got) in books.items()} == {
                name: (version, []) for name in names
            }
            trainer.step(0.1)

    asyncio.run(send())


def test_a_chunk_of_another_version_is_refused_and_the_next_stream_is_whole(rig: InProcess | Split) -> None:
    async def send() -> None:
        transfer = rig.transfer(Trainer().export_weights)
        with pytest.raises(SyncError, match="embedding must be of version 3, got 0"):
            await transfer.send(rig.samplers, 3)
        for sent, received in (await transfer.send(rig.samplers, 0)).values():
            assert discrepancies(sent, received) == []

    asyncio.run(send())


def test_a_scale_reaches_the_receiver_and_its_books_and_leaves_the_trainer_alone(rig: InProcess | Split) -> None:
    trainer = Trainer()
    before = trainer.weights["head"].clone()

    async def send() -> None:
        books = await rig.transfer(trainer.export_weights).send(rig.samplers, 0, scale=1.5)
        assert torch.equal((await rig.held("one"))["head"], before * 1.5)
        assert all(discrepancies(*both) == [] for both in books.values())

    asyncio.run(send())
    assert torch.equal(trainer.weights["head"], before)


@pytest.mark.parametrize("fault", ["fails", "fails before"])
def test_the_receiver_that_failed_is_named_and_no_other_and_nobody_waits(rig: InProcess | Split, fault: str) -> None:
    trainer = Trainer()

    async def send() -> None:
        await rig.break_down("other", fault)
        transfer = rig.transfer(trainer.export_weights)
        with pytest.raises(DeliveryError, match="other: ConnectionError: the worker is gone") as failure:
            await asyncio.wait_for(transfer.send(rig.samplers, 0), 15)
        assert set(failure.value.failures) == {"other"}
        await rig.break_down("other", "")
        for sent, received in (await transfer.send(rig.samplers, 0)).values():
            assert discrepancies(sent, received) == []

    asyncio.run(send())


def test_the_trainer_s_stream_is_read_to_its_end_whatever_happens(rig: InProcess | Split) -> None:
    """Other ranks take part in gathering it."""
    made: list[str] = []

    def stream() -> Iterator[WeightChunk]:
        for chunk in Trainer().export_weights():
            made.append(chunk.name)
            yield chunk

    async def send() -> None:
        await rig.break_down("one", "fails before")
        await rig.break_down("other", "fails before")
        with pytest.raises(DeliveryError):
            await rig.transfer(stream).send(rig.samplers, 0)

    asyncio.run(send())
    assert made[:3] == ["embedding", "body", "head"]


def test_weights_stream_one_at_a_time() -> None:
    alive: list[str] = []

    def stream() -> Iterator[WeightChunk]:
        for index in range(4):
            alive.append(f"made {index}")
            yield WeightChunk(str(index), torch.ones(2), 0)

    class Watching(Sampler):
        def take(self, chunk: WeightChunk) -> None:
            alive.append(f"took {chunk.name}")
            super().take(chunk)

    asyncio.run(InProcessTransfer(stream).send({"one": Watching()}, 0))
    assert alive == [f"{what} {index}" for index in range(4) for what in ("made", "took")]


def test_the_sender_casts_and_keeps_its_books_in_the_receiver_s_type(rig: InProcess | Split) -> None:
    trainer = Trainer()

    async def send() -> None:
        books = await rig.transfer(trainer.export_weights, torch.bfloat16).send(rig.samplers, 0)
        assert (await rig.held("one"))["head"].dtype == torch.bfloat16
        sent, received = books["one"]
        assert discrepancies(sent, received) == []
        assert sent.checksums[0] != weight_checksum(trainer.weights["embedding"])

    asyncio.run(send())


def test_a_whole_number_type_is_no_type_for_weights() -> None:
    with pytest.raises(ValueError, match="must be a floating-point type"):
        InProcessTransfer(Trainer().export_weights, torch.int8)


# ------------------------------------------------------------------------------------------- books


def receipt(*names: str, version: int = 0, checksum: float = 1.0) -> WeightReceipt:
    return WeightReceipt(version, names, (checksum,) * len(names))


@pytest.mark.parametrize(
    ("sent", "received", "lines"),
    [
        (receipt("a", "b"), receipt("b", "a"), []),
        (receipt("a", "b"), receipt("a"), ["b was sent and not consumed"]),
        (receipt("a"), receipt("a", "b"), ["b was consumed and never sent"]),
        (receipt("a"), receipt("a", "a"), ["a was consumed 2 times"]),
        (receipt("a", "a"), receipt("a"), ["a was sent 2 times"]),
        (receipt("a"), receipt("a", version=1), ["version 0 was sent, the receiver holds 1"]),
        (receipt("a"), receipt("a", checksum=1.1), ["a has checksum 1.1 in the receiver, 1.0 was sent"]),
        (receipt("a"), receipt("a", checksum=float("nan")), ["a has checksum nan in the receiver, 1.0 was sent"]),
        (receipt("a", checksum=0.0), receipt("a", checksum=0.0), []),
    ],
)
def test_every_way_in_which_books_can_differ_has_its_line(
    sent: WeightReceipt, received: WeightReceipt, lines: list[str]
) -> None:
    assert discrepancies(sent, received) == lines


def test_the_account_passes_chunks_on_untouched() -> None:
    chunks = list(Trainer().export_weights())
    account = SendingAccount()
    passed = list(account.recorded(chunks, 0))
    assert all(one is other for one, other in zip(passed, chunks, strict=True))
    assert account.receipt(0).names == ("embedding", "body", "head")


@pytest.mark.parametrize("shape", [(), (3,), (1 << 19, 2), (0,)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_checksum_is_the_float64_sum_of_absolute_values(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert weight_checksum(tensor) == pytest.approx(float(tensor.double().abs().sum()), rel=1e-12)
    assert weight_checksum(tensor.mT if tensor.ndim == 2 else tensor) == pytest.approx(
        float(tensor.double().abs().sum()), rel=1e-12
    )


def test_one_changed_weight_of_many_changes_the_checksum_beyond_its_tolerance() -> None:
    tensor = torch.full((1000, 1000), 0.02)
    sent = WeightReceipt(0, ("w",), (weight_checksum(tensor),))
    tensor[500, 500] += 1e-4
    assert discrepancies(sent, WeightReceipt(0, ("w",), (weight_checksum(tensor),)))


# ------------------------------------------------------------------------------------------- buckets


def chunks_of(*sizes: int) -> list[WeightChunk]:
    return [WeightChunk(str(index), torch.zeros(size), 0) for index, size in enumerate(sizes)]


def test_buckets_keep_to_the_bound_and_to_the_order() -> None:
    chunks = chunks_of(1, 2, 3, 1, 1, 9, 1)
    found = [[chunk.name for chunk in bucket] for bucket in buckets(chunks, 16)]
    assert found == [["0", "1"], ["2", "3"], ["4"], ["5"], ["6"]]


def test_a_chunk_over_the_bound_travels_alone() -> None:
    assert [len(bucket) for bucket in buckets(chunks_of(100, 100), 1)] == [1, 1]


def test_empty_tensors_and_empty_streams_are_no_special_case() -> None:
    assert [len(bucket) for bucket in buckets(chunks_of(0, 0, 0), 4)] == [3]
    assert list(buckets([], 4)) == []


def test_buckets_take_no_more_from_the_stream_than_they_need() -> None:
    taken = itertools.count()
    stream = ((next(taken) and chunk) or chunk for chunk in chunks_of(1, 1, 1, 1, 1, 1, 1, 1))
    next(buckets(stream, 8))
    assert next(taken) == 3


def test_a_bucket_must_have_room() -> None:
    with pytest.raises(ValueError, match="room for at least 1 byte, got 0"):
        list(buckets([], 0))
