"""Weights to rollout engines in the same process: tensors are handed over, nothing is copied on the way.

weights() --scale, cast--> account --> receiver.receive_weights --> receipt          one stream a receiver
"""

import asyncio
from collections.abc import Mapping

import torch

from strop.protocols import RolloutEngine
from strop.records import WeightReceipt
from strop.transfer.errors import DeliveryError
from strop.transfer.sending import WeightOutlet
from strop.transfer.source import Weights

Books = tuple[WeightReceipt, WeightReceipt]


class InProcessTransfer:
    """Implements `protocols.WeightTransfer` for engines that live beside the trainer."""

    def __init__(self, weights: Weights, dtype: torch.dtype | None = None) -> None:
        """Takes the trainer's stream and the receivers' floating-point type; None sends weights as they are trained."""
        self._outlet = WeightOutlet(weights, dtype)

    async def send(
        self, receivers: Mapping[str, RolloutEngine], version: int, *, scale: float = 1.0
    ) -> dict[str, Books]:
        """Streams the weights to each engine and returns the books by name; see `protocols.WeightTransfer`."""
        sent = await asyncio.gather(
            *(self._send_one(engine, version, scale) for engine in receivers.values()), return_exceptions=True
        )
        outcomes = dict(zip(receivers, sent, strict=True))
        failures = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, BaseException)}
        if failures:
            raise DeliveryError(failures)
        return {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, BaseException)}

    async def _send_one(self, receiver: RolloutEngine, version: int, scale: float) -> Books:
        with self._outlet.opened(version, scale) as (chunks, account):
            received = await receiver.receive_weights(chunks, version)
            return account.receipt(version), received
