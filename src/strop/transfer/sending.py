"""What every sending half does with the trainer's stream."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from strop.records import WeightChunk, WeightReceipt
from strop.transfer.accounting import SendingAccount
from strop.transfer.source import Weights, outgoing, require_floating_point

DEFAULT_BUCKET_BYTES = 8 << 20
DEFAULT_TIMEOUT_SECONDS = 120.0
"""Bound of every single wait for the other side."""


class WeightOutlet:
    """The trainer's stream, as it leaves: scaled, cast, accounted for."""

    def __init__(self, weights: Weights, dtype: torch.dtype | None) -> None:
        """Takes the stream and the receivers' floating-point type; None sends weights as they are trained."""
        self._weights = weights
        self._dtype = require_floating_point(dtype)

    @contextmanager
    def opened(self, version: int, scale: float) -> Iterator[tuple[Iterator[WeightChunk], SendingAccount]]:
        """Starts a stream and its account.

        The trainer's own stream is read to its end in any case: other ranks take part in its gathering, and would
        wait for ever.
        """
        raw = self._weights()
        account = SendingAccount()
        try:
            yield account.recorded(outgoing(lambda: raw, self._dtype, scale), version), account
        finally:
            drain(raw)


def drain(chunks: Iterator[WeightChunk]) -> None:
    """Reads a stream to its end and keeps nothing."""
    for _ in chunks:
        pass


class DrainingHalf:
    """The end of a trainer rank that sends nothing: it takes part in gathering what rank 0 sends."""

    def __init__(self, weights: Weights) -> None:
        """Takes the rank's own stream."""
        self._weights = weights

    def open_stream(self, names: Sequence[str]) -> dict[str, object]:
        """Does nothing: rank 0 makes the meeting place."""
        return {}

    def send_stream(self, version: int, scale: float) -> WeightReceipt:
        """Reads the stream to its end; the account is empty."""
        drain(self._weights())
        return WeightReceipt(version, (), ())

    async def close_stream(self) -> None:
        """Does nothing."""
