"""Weights to a rollout engine in the same process: tensors are handed over, nothing is copied on the way.

weights() --cast to the receiver's type--> account --> receiver.receive_weights --> receipt
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from strop.protocols import RolloutEngine
from strop.records import WeightChunk, WeightReceipt
from strop.transfer.accounting import SendingAccount


class InProcessTransfer:
    """Implements `protocols.WeightTransfer` for engines that live beside the trainer."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        """Keeps the receivers' floating-point type; None sends weights as they are trained."""
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"the receivers' type must be a floating-point type, got {dtype}")
        self._dtype = dtype

    async def send(
        self, weights: Callable[[], Iterator[WeightChunk]], receiver: RolloutEngine, version: int
    ) -> tuple[WeightReceipt, WeightReceipt]:
        """Streams the weights to one engine and returns the sender's and the receiver's account."""
        account = SendingAccount()
        received = await receiver.receive_weights(account.recorded(self._cast(weights()), version), version)
        return account.receipt(version), received

    def _cast(self, chunks: Iterable[WeightChunk]) -> Iterator[WeightChunk]:
        for chunk in chunks:
            if self._dtype is None or not chunk.tensor.is_floating_point():
                yield chunk
            else:
                yield replace(chunk, tensor=chunk.tensor.to(self._dtype))
