"""The way of a request to an engine: through the gate that publications shut."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from strop.protocols import RolloutEngine
from strop.records import Completion, GroupRequest


class Gate(Protocol):
    """Lets a request through unless a publication is under way."""

    def request(self) -> AbstractAsyncContextManager[None]:
        """Waits until the gate is open and counts the request as inside."""


class GatedRouter:
    """Sends every request to one engine while the gate is open; implements `protocols.Sampler`."""

    def __init__(self, engine: RolloutEngine, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """Completes a prompt once per stream; waits while weights are being published."""
        async with self._gate.request():
            return await self._engine.generate(request)
