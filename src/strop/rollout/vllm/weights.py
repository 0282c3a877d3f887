"""The sending side of a publication to vLLM: names are accounted for here, the worker says what it holds.

chunks --check--> buckets --copy--> shared file A, B, A, ... --> worker: load --> layers processed
                                    (B is filled while the worker takes A)
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from strop.records import WeightChunk, WeightReceipt
from strop.rollout.native.weights import MAX_NAMES_IN_ERROR
from strop.rollout.vllm.host import VllmHost
from strop.rollout.vllm.shared_file import SharedFile
from strop.transfer import chunk_bytes

BUCKET_BYTES: Final = 32 << 20
"""Weights that travel together; a larger weight travels alone. Two buckets exist at a time."""


class WeightSender:
    """Streams full sets of weights to one engine."""

    def __init__(self, host: VllmHost, shapes: Mapping[str, tuple[int, ...]], tied: Mapping[str, str]) -> None:
        """Takes what the worker holds: shapes by name, and names of tied weights."""
        self._host = host
        self._shapes = dict(shapes)
        self._tied = dict(tied)
        self._files: list[SharedFile | None] = [None, None]

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a full set must have."""
        return tuple(self._shapes)

    async def send(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        """Sends a full set and returns what the worker holds then; on the caller's loop.

        Raises ValueError naming what was unknown, doubled, missing, of another shape or version, or not taken over;
        the weights then are a mixture and must be received anew.
        """
        problems: list[str] = []
        names: list[str] = []
        await self._host.call(self._host.on_workers("strop_begin_weights"))
        try:
            await self._stream(self._accepted(chunks, version, names, problems))
        finally:
            checksums = await self._host.call(self._host.on_workers("strop_finish_weights"))
        problems += [f"missing: {name}" for name in self._shapes if name not in checksums]
        problems += [f"not taken over: {name}" for name in names if math.isnan(checksums[name])]
        if problems:
            raise ValueError(_complaint(problems))
        return WeightReceipt(version, tuple(names), tuple(checksums[name] for name in names))

    def close(self) -> None:
        """Removes the shared files."""
        for file in self._files:
            if file is not None:
                file.close()

    async def _stream(self, chunks: Iterator[WeightChunk]) -> None:
        """Copies each weight as it comes, since its memory may be used anew for the next, and sends what is full."""
        loading: asyncio.Future[None] | None = None
        turn, file = 0, self._emptied(0, BUCKET_BYTES)
        try:
            for chunk in chunks:
                if not file.has_room(chunk):
                    if file.entries:
                        loading, turn = await self._load(file, loading), 1 - turn
                    file = self._emptied(turn, chunk_bytes(chunk))
                file.add(chunk)
            if file.entries:
                loading = await self._load(file, loading)
        finally:
            if loading is not None:
                await loading

    async def _load(self, file: SharedFile, loading: asyncio.Future[None] | None) -> asyncio.Future[None]:
        """Lets the worker take a file as soon as it has taken the one before."""
        if loading is not None:
            await loading
        call = self._host.on_workers("strop_load_weights", file.path, file.entries)
        started = asyncio.ensure_future(self._host.call(call))
        await asyncio.sleep(0)
        return started

    def _emptied(self, turn: int, num_bytes: int) -> SharedFile:
        """Returns one of the two files, of at least that size; the worker has taken what was in it."""
        file = self._files[turn]
        if file is None or file.num_bytes < num_bytes:
            if file is not None:
                file.close()
            file = self._files[turn] = SharedFile(max(num_bytes, BUCKET_BYTES))
        file.empty()
        return file

    def _accepted(
        self, chunks: Iterable[WeightChunk], version: int, names: list[str], problems: list[str]
    ) -> Iterator[WeightChunk]:
        """Passes on what the worker can take, and notes names and problems."""
        seen: set[str] = set()
        for chunk in chunks:
            problem = f"doubled: {chunk.name}" if chunk.name in seen else self._problem(chunk, version)
            if problem is not None:
                problems.append(problem)
                continue
            seen.add(chunk.name)
            names.append(chunk.name)
            yield chunk

    def _problem(self, chunk: WeightChunk, version: int) -> str | None:
        if chunk.name in self._tied:
            return f"unknown: {chunk.name} (tied to {self._tied[chunk.name]}: send it once, under that name)"
        if chunk.name not in self._shapes:
            return f"unknown: {chunk.name}"
        if tuple(chunk.tensor.shape) != self._shapes[chunk.name]:
            return f"wrong shape: {chunk.name} must be {self._shapes[chunk.name]}, got {tuple(chunk.tensor.shape)}"
        if chunk.version != version:
            return f"wrong version: {chunk.name} must be of version {version}, got {chunk.version}"
        return None


def _complaint(problems: list[str]) -> str:
    shown = "; ".join(problems[:MAX_NAMES_IN_ERROR])
    more = f"; and {len(problems) - MAX_NAMES_IN_ERROR} more" if len(problems) > MAX_NAMES_IN_ERROR else ""
    return f"weights must arrive each exactly once in their own shape, got {shown}{more}"
