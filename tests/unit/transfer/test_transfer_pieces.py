"""Tensors cut to fit buckets come out as they went in, within the bound."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.errors import SyncError
from strop.records import WeightChunk
from strop.transfer.pieces import Bucket, LentRoom, Piece, Room, packed, unpacked

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn)


def tensor_of(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 3).to(dtype)


def travelled(buckets: Iterator[Bucket]) -> Iterator[Bucket]:
    """As another process sees them: copies, which are gone once the next is asked for."""
    for buffer, pieces in buckets:
        copy = buffer.clone()
        yield copy, [Piece.from_json(piece.to_json()) for piece in pieces]
        copy.fill_(255)


def round_trip(chunks: list[WeightChunk], bucket_bytes: int, *, lend: bool) -> list[tuple[str, torch.Tensor]]:
    buckets = packed(chunks, lambda: torch.empty(bucket_bytes, dtype=torch.uint8))
    received = unpacked(travelled(buckets), 3, LentRoom() if lend else Room())
    return [(chunk.name, chunk.tensor.clone() if lend else chunk.tensor) for chunk in received]


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=8),
    bucket_bytes=st.integers(1, 700),
    lend=st.booleans(),
    data=st.data(),
)
def test_every_tensor_comes_out_bit_equal_in_order(
    shapes: list[list[int]], bucket_bytes: int, lend: bool, data: st.DataObject
) -> None:
    chunks = [
        WeightChunk(f"w{index}", tensor_of(tuple(shape), data.draw(st.sampled_from(DTYPES)), index), 3)
        for index, shape in enumerate(shapes)
    ]
    received = round_trip(chunks, bucket_bytes, lend=lend)
    assert [name for name, _ in received] == [chunk.name for chunk in chunks]
    for chunk, (_, tensor) in zip(chunks, received, strict=True):
        assert (tensor.dtype, tensor.shape) == (chunk.tensor.dtype, chunk.tensor.shape)
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), chunk.tensor.reshape(-1).view(torch.uint8))


def test_a_view_that_is_not_contiguous_travels_by_its_values() -> None:
    tensor = torch.arange(12.0).view(3, 4).mT
    ((_, received),) = round_trip([WeightChunk("w", tensor, 3)], 20, lend=False)
    assert torch.equal(received, tensor)


def test_only_what_fits_into_no_bucket_is_cut() -> None:
    chunks = [
        WeightChunk(name, torch.zeros(size, dtype=torch.uint8), 0) for name, size in (("a", 60), ("b", 90), ("c", 250))
    ]
    buckets = list(packed(chunks, lambda: torch.empty(100, dtype=torch.uint8)))
    assert [[(one.name, one.start, one.num_bytes) for one in pieces] for _, pieces in buckets] == [
        [("a", 0, 60)],
        [("b", 0, 90)],
        [("c", 0, 100)],
        [("c", 100, 100)],
        [("c", 200, 50)],
    ]


def test_a_buffer_is_asked_for_only_when_something_goes_into_it() -> None:
    asked = []

    def next_buffer() -> torch.Tensor:
        asked.append(len(asked))
        return torch.empty(100, dtype=torch.uint8)

    stream = packed([WeightChunk(str(index), torch.zeros(80, dtype=torch.uint8), 0) for index in range(3)], next_buffer)
    assert next(stream)
    assert len(asked) == 1
    assert list(packed([], next_buffer)) == []


def test_a_piece_that_was_lost_is_an_error() -> None:
    chunk = WeightChunk("w", torch.zeros(250, dtype=torch.uint8), 0)
    buckets = list(packed([chunk], lambda: torch.empty(100, dtype=torch.uint8)))
    with pytest.raises(SyncError, match="w must go on at byte 100, got a piece that begins at 200"):
        list(unpacked([buckets[0], buckets[2]], 0, Room()))
    with pytest.raises(SyncError, match="the last tensor must have 250 bytes, got 200"):
        list(unpacked(buckets[:2], 0, Room()))


def test_a_type_that_is_unknown_here_is_an_error() -> None:
    with pytest.raises(SyncError, match=r"w must be of a type that torch .* has, got torch.float3"):
        Piece.from_json(["w", "torch.float3", [1], 0, 4, 0])
