"""A sampler in a process of its own, and how the controller sees it."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.cluster.ray.cluster import RemoteObject
from strop.records import Completion, GroupRequest, WeightChunk, WeightReceipt


class RemoteEngine:
    """Implements `protocols.RolloutEngine` by asking an engine in an actor."""

    def __init__(self, actor: RemoteObject) -> None:
        self.actor = actor
        self.name = actor.name

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """Completes the prompt once per stream."""
        found: list[Completion] = await self.actor.call("generate", request)
        return found

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences without any cache."""
        found: list[NDArray[np.float32]] = await self.actor.call("score", list(token_ids))
        return found

    async def interrupt(self) -> None:
        """Ends every generation at once."""
        await self.actor.call("interrupt")

    async def pause(self) -> None:
        """Stops between two tokens."""
        await self.actor.call("pause")

    async def resume(self) -> None:
        """Goes on after `pause`."""
        await self.actor.call("resume")

    async def sleep(self, *, drop_weights: bool = False) -> None:
        """Gives memory back."""
        await self.actor.call("sleep", drop_weights=drop_weights)

    async def wake(self) -> None:
        """Serves again."""
        await self.actor.call("wake")

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        """Takes one full set of weights, whole in one message; a transfer between processes streams them instead."""
        receipt: WeightReceipt = await self.actor.call("receive_weights", list(chunks), version)
        return receipt

    async def counters(self) -> dict[str, Any]:
        """What the engine counted since it began."""
        found: dict[str, Any] = await self.actor.call("counted")
        return found
