"""Weights cut to fit buckets of fixed size, and put together again.

    chunks --packed--> buckets: uint8 tensors of at most so many bytes, and a list of pieces that says what lies where
    buckets --unpacked--> chunks

A tensor stays whole where a bucket can hold it; a larger one is cut and assembled by the receiver, which holds one
such tensor at a time. So the memory beyond the weights themselves is the buckets and the largest tensor.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from strop.errors import SyncError
from strop.records import WeightChunk

_ALIGNMENT = 64
"""Pieces begin at multiples of this many bytes, so that every type can be viewed in place."""

_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one tensor in a bucket."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: int
    """The first byte of the tensor that this piece holds."""
    num_bytes: int
    place: int
    """Where in the bucket it begins."""

    @property
    def tensor_bytes(self) -> int:
        """The size of the whole tensor."""
        return prod(self.shape) * _DTYPES[self.dtype].itemsize

    def to_json(self) -> list[Any]:
        """Returns it as a list of plain values."""
        return [self.name, self.dtype, list(self.shape), self.start, self.num_bytes, self.place]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "Piece":
        """Reads what `to_json` wrote. Raises SyncError for a type that this torch does not have."""
        name, dtype, shape, start, num_bytes, place = values
        if dtype not in _DTYPES:
            raise SyncError(f"{name} must be of a type that torch {torch.__version__} has, got {dtype}")
        return cls(name, dtype, tuple(shape), start, num_bytes, place)


Bucket = tuple[torch.Tensor, list[Piece]]
"""The bytes, on the CPU, and what lies in them."""


def packed(chunks: Iterable[WeightChunk], next_buffer: Callable[[], torch.Tensor]) -> Iterator[Bucket]:
    """Copies a stream into buffers, in order; asks for a buffer as soon as there is something to put into it.

    `next_buffer` returns a uint8 tensor that may be overwritten, always of the same size.
    """
    buffer, pieces = None, list[Piece]()
    for chunk in chunks:
        flat = _bytes_of(chunk.tensor)
        start, is_open = 0, True
        while is_open:
            if buffer is None:
                buffer, pieces = next_buffer(), []
            room = max(0, len(buffer) - _end(pieces))
            if pieces and _waits_for_a_new_bucket(len(flat) - start, room, len(buffer)):
                yield buffer, pieces
                buffer = None
                continue
            piece = _piece(chunk, start, min(len(flat) - start, room), _end(pieces))
            buffer[piece.place : piece.place + piece.num_bytes].copy_(flat[start : start + piece.num_bytes])
            pieces.append(piece)
            start += piece.num_bytes
            is_open = start < len(flat)
    if buffer is not None:
        yield buffer, pieces


def _waits_for_a_new_bucket(num_bytes: int, room: int, bucket_bytes: int) -> bool:
    """Whether the rest of a tensor does not fit here: it is cut only where no bucket could hold it whole."""
    return num_bytes > room and (num_bytes <= bucket_bytes or room == 0)


def _end(pieces: Sequence[Piece]) -> int:
    """Where the next piece begins."""
    if not pieces:
        return 0
    end = pieces[-1].place + pieces[-1].num_bytes
    return -(-end // _ALIGNMENT) * _ALIGNMENT


def _piece(chunk: WeightChunk, start: int, num_bytes: int, place: int) -> Piece:
    return Piece(chunk.name, str(chunk.tensor.dtype), tuple(chunk.tensor.shape), start, num_bytes, place)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Room:
    """Memory in which tensors are joined that no bucket holds whole."""

    def of(self, num_bytes: int) -> torch.Tensor:
        """Returns memory of its own for a tensor, [num_bytes] of uint8."""
        return torch.empty(num_bytes, dtype=torch.uint8)


class LentRoom(Room):
    """Memory that stays, as large as the largest tensor: mapping it anew takes longer than copying into it."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def of(self, num_bytes: int) -> torch.Tensor:
        """Returns memory that is overwritten by the next tensor."""
        if len(self._memory) < num_bytes:
            self._memory = super().of(num_bytes)
        return self._memory[:num_bytes]


def unpacked(buckets: Iterable[Bucket], version: int, room: Room) -> Iterator[WeightChunk]:
    """Puts the tensors together again, in order.

    With a `LentRoom`, a tensor lies there or in the bucket itself and is valid only until the next chunk is taken;
    else every tensor has memory of its own. Raises SyncError where the pieces of a tensor do not join.
    """
    lend = isinstance(room, LentRoom)
    whole: torch.Tensor | None = None
    filled = 0
    for buffer, pieces in buckets:
        for piece in pieces:
            part = buffer[piece.place : piece.place + piece.num_bytes]
            if piece.num_bytes == piece.tensor_bytes:
                yield _chunk(piece, part if lend else part.clone(), version)
                continue
            if piece.start == 0:
                whole, filled = room.of(piece.tensor_bytes), 0
            if whole is None or piece.start != filled or piece.tensor_bytes != len(whole):
                raise SyncError(f"{piece.name} must go on at byte {filled}, got a piece that begins at {piece.start}")
            whole[piece.start : piece.start + piece.num_bytes].copy_(part)
            filled += piece.num_bytes
            if filled == len(whole):
                joined, whole = whole, None
                yield _chunk(piece, joined, version)
                del joined
    if whole is not None:
        raise SyncError(f"the last tensor must have {len(whole)} bytes, got {filled}")


def _chunk(piece: Piece, flat: torch.Tensor, version: int) -> WeightChunk:
    dtype = _DTYPES[piece.dtype]
    if not piece.num_bytes:  # may lie where no element of its type could
        return WeightChunk(piece.name, torch.empty(piece.shape, dtype=dtype), version)
    return WeightChunk(piece.name, flat.view(dtype).view(piece.shape), version)
