"""The two ends of the transfer of weights between processes, and the channel to all trainer ranks."""

import asyncio
from typing import Any

import torch

from strop.cluster.ray.cluster import RemoteObject
from strop.config.weight_sync import WeightSyncConfig
from strop.protocols import RolloutEngine
from strop.rollout.native.engine import NativeEngine
from strop.transfer.build import build_receiving_half, build_sending_half
from strop.transfer.sending import DrainingHalf
from strop.transfer.source import Weights
from strop.transfer.split import ReceivingHalf, SendingHalf


def sending_half(
    config: WeightSyncConfig, weights: Weights, dtype: torch.dtype, rank: int
) -> SendingHalf | DrainingHalf:
    """The trainer's end: the first rank sends, the others take part in gathering."""
    if rank > 0:
        return DrainingHalf(weights)
    return build_sending_half(config, weights, dtype)


def receiving_half(config: WeightSyncConfig, engine: RolloutEngine) -> ReceivingHalf:
    """The sampler's end; the native engine copies every weight as it comes."""
    return build_receiving_half(config, engine, lend=isinstance(engine, NativeEngine))


class RanksChannel:
    """A `transfer.Channel` to all ranks: each is asked the same, and the first one's answer counts."""

    def __init__(self, ranks: list[RemoteObject]) -> None:
        self._ranks = ranks

    async def call(self, method: str, *args: Any) -> Any:
        """Calls a method of every rank."""
        answers = await asyncio.gather(*(rank.call(method, *args) for rank in self._ranks))
        return answers[0]
