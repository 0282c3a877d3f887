"""The door in front of engines that live in this process.

    async with gate.request():        waits while the gate is shut, counts who is inside
        await engine.generate(...)

`shut` is unblocked by `release` (a publication was proven) or `refuse` (it failed, and the run stops).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LocalGate:
    """Implements `protocols.RequestGate` for callers on one event loop."""

    def __init__(self) -> None:
        """Makes a gate that is open."""
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._num_inside = 0
        self._refusal: Exception | None = None

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Lets one request through, as soon as the gate is open. Raises the refusal where the run is stopping."""
        while not self._open.is_set():
            await self._open.wait()
        if self._refusal is not None:
            raise self._refusal
        self._num_inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._num_inside -= 1
            if not self._num_inside:
                self._empty.set()

    def shut(self) -> None:
        """Lets no new request through; those inside go on."""
        self._open.clear()

    async def emptied(self, timeout_seconds: float) -> None:
        """Waits until no request is inside. Raises TimeoutError saying how many are."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_seconds)
        except TimeoutError as error:
            raise TimeoutError(
                f"{self._num_inside} requests did not leave the samplers within {timeout_seconds:g} s"
            ) from error

    def release(self) -> None:
        """Lets requests through again."""
        self._open.set()

    def refuse(self, error: Exception) -> None:
        """Answers every waiting and later request with an error: the run is stopping."""
        self._refusal = error
        self._open.set()
