"""What every weight transfer must keep to, and the books that are kept of it."""

import asyncio
import itertools
from collections.abc import Callable, Iterator

import pytest
import torch

from strop.errors import SyncError
from strop.protocols import WeightTransfer
from strop.records import WeightChunk, WeightReceipt
from strop.transfer import (
    DeliveryError,
    InProcessTransfer,
    SendingAccount,
    buckets,
    discrepancies,
    weight_checksum,
)
from support.softmax_policy import Sampler, Trainer

Factory = Callable[..., WeightTransfer]
TRANSFERS: dict[str, Factory] = {"in_process": InProcessTransfer}


@pytest.fixture(params=sorted(TRANSFERS))
def make_transfer(request: pytest.FixtureRequest) -> Factory:
    return TRANSFERS[request.param]


def test_every_receiver_holds_what_was_sent_and_the_books_balance(make_transfer: Factory) -> None:
    trainer, samplers = Trainer(), {"one": Sampler(seed=5), "other": Sampler(seed=6)}
    books = asyncio.run(make_transfer(trainer.export_weights).send(samplers, 0))
    for name, (sent, received) in books.items():
        held = samplers[name].weights
        assert all(torch.equal(trainer.weights[weight], held[weight]) for weight in trainer.weights)
        assert sent.names == tuple(trainer.weights)
        assert discrepancies(sent, received) == []


def test_one_transfer_sends_version_after_version(make_transfer: Factory) -> None:
    trainer, sampler = Trainer(), Sampler()
    transfer = make_transfer(trainer.export_weights)
    for version in range(3):
        ((sent, received),) = asyncio.run(transfer.send({"one": sampler}, version)).values()
        assert (sent.version, received.version, discrepancies(sent, received)) == (version, version, [])
        trainer.step(0.1)


def test_a_chunk_of_another_version_is_refused(make_transfer: Factory) -> None:
    with pytest.raises(SyncError, match="embedding must be of version 3, got 0"):
        asyncio.run(make_transfer(Trainer().export_weights).send({"one": Sampler()}, 3))


def test_a_scale_reaches_the_receiver_and_its_books_and_leaves_the_trainer_alone(make_transfer: Factory) -> None:
    trainer, sampler = Trainer(), Sampler()
    before = trainer.weights["head"].clone()
    ((sent, received),) = asyncio.run(
        make_transfer(trainer.export_weights).send({"one": sampler}, 0, scale=1.5)
    ).values()
    assert torch.equal(sampler.weights["head"], before * 1.5)
    assert torch.equal(trainer.weights["head"], before)
    assert discrepancies(sent, received) == []


class Gone(Sampler):
    """Fails half-way."""

    def take(self, chunk: WeightChunk) -> None:
        if chunk.name == "body":
            raise ConnectionError("the worker is gone")
        super().take(chunk)


def test_the_receiver_that_failed_is_named_and_no_other(make_transfer: Factory) -> None:
    samplers = {"one": Sampler(), "other": Gone()}
    with pytest.raises(DeliveryError, match="other: ConnectionError: the worker is gone") as failure:
        asyncio.run(make_transfer(Trainer().export_weights).send(samplers, 0))
    assert set(failure.value.failures) == {"other"}


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


def test_the_sender_casts_and_keeps_its_books_in_the_receiver_s_type(make_transfer: Factory) -> None:
    trainer, sampler = Trainer(), Sampler()
    transfer = make_transfer(trainer.export_weights, torch.bfloat16)
    ((sent, received),) = asyncio.run(transfer.send({"one": sampler}, 0)).values()
    assert sampler.weights["head"].dtype == torch.bfloat16
    assert discrepancies(sent, received) == []
    assert sent.checksums[0] != weight_checksum(trainer.weights["embedding"])


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
