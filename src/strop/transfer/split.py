"""A transfer whose two ends live in different processes, and the controller that joins them.

    controller                     trainer's process: SendingHalf        engine's process: ReceivingHalf
    ----------                     ------------------------------        -------------------------------
    open_stream     -------------> makes a meeting place, returns it
    send_stream     -------------> scale, cast, account, buckets ======> receive_stream: buckets, chunks, engine
                    <------------- what was sent                         what the engine holds ----> controller
    close_stream    -------------> gives everything back

Weights never pass the controller. `send_stream` waits for receivers and receivers wait for `send_stream`, each with a
time limit; whoever dies is seen by the other side, which raises TransferBrokenError. As soon as one end fails, the
controller breaks the stream off, so that nobody waits for the time limit, and names the end that failed of itself.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from strop.errors import SyncError
from strop.protocols import RolloutEngine
from strop.records import WeightReceipt
from strop.transfer.channel import Channel
from strop.transfer.errors import DeliveryError, TransferBrokenError
from strop.transfer.in_process import Books

Address = dict[str, Any]
"""Where a stream is met: plain values, made and read by the two halves of one kind of transfer."""

GRACE_SECONDS = 5.0
"""How long the other ends may take to notice that a stream was broken off."""


class SendingHalf(Protocol):
    """The trainer's end. Its methods are called through a channel, one publication after the other.

    Where several ranks hold the policy, rank 0 has this and the others a `DrainingHalf`.
    """

    def open_stream(self, names: Sequence[str]) -> Address:
        """Makes a meeting place for receivers of these names."""

    def send_stream(self, version: int, scale: float) -> WeightReceipt:
        """Sends all weights and returns the account; reads the trainer's stream to its end also where it fails."""

    async def close_stream(self) -> None:
        """Gives the meeting place back and breaks off what is under way; may be called at any time, and twice."""


class ReceivingHalf(Protocol):
    """An engine's end, in the engine's process."""

    async def receive_stream(self, address: Address, name: str, version: int) -> WeightReceipt:
        """Gives the stream to `RolloutEngine.receive_weights` and returns what the engine says it holds."""


class SplitTransfer:
    """Implements `protocols.WeightTransfer` over channels to a sending half and to receiving halves."""

    def __init__(
        self, sender: Channel, receivers: Mapping[str, Channel], *, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        """Takes the channels; `receivers` is read at every send, so that a restarted engine can take its place."""
        self._sender = sender
        self._receivers = receivers
        self._grace_seconds = grace_seconds

    async def send(
        self, receivers: Mapping[str, RolloutEngine], version: int, *, scale: float = 1.0
    ) -> dict[str, Books]:
        """Has one stream sent to all receivers at once; see `protocols.WeightTransfer`.

        Of `receivers` the names are used: each must have a channel.
        """
        missing = [name for name in receivers if name not in self._receivers]
        if missing or not receivers:
            raise ValueError(
                f"each receiver must have a channel, one at least, got {sorted(self._receivers)} without {missing}"
            )
        address = await self._sender.call("open_stream", tuple(receivers))
        try:
            return await self._run(address, tuple(receivers), version, scale)
        finally:
            await self._sender.call("close_stream")

    async def _run(self, address: Address, names: Sequence[str], version: int, scale: float) -> dict[str, Books]:
        sending = asyncio.ensure_future(self._sender.call("send_stream", version, scale))
        receiving = {
            name: asyncio.ensure_future(self._receivers[name].call("receive_stream", address, name, version))
            for name in names
        }
        await self._ended([sending, *receiving.values()])
        failures = {name: error for name, task in receiving.items() if (error := _error_of(task)) is not None}
        sender_error = _error_of(sending)
        own_failures = {name: error for name, error in failures.items() if not isinstance(error, TransferBrokenError)}
        if own_failures:
            raise DeliveryError(own_failures)
        if sender_error is not None:
            raise _told_of_sender(sender_error) from sender_error
        if failures:
            raise DeliveryError(failures)
        return {name: (sending.result(), task.result()) for name, task in receiving.items()}

    async def _ended(self, tasks: "Sequence[asyncio.Future[Any]]") -> None:
        """Waits for all ends; once one has failed, breaks the stream off and gives the others a short while."""
        try:
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if pending:
                await self._sender.call("close_stream")
                await asyncio.wait(pending, timeout=self._grace_seconds)
        finally:
            for task in tasks:
                task.cancel()


def _error_of(task: "asyncio.Future[Any]") -> BaseException | None:
    if not task.done() or task.cancelled():
        return TransferBrokenError("it did not answer after the stream was broken off")
    return task.exception()


def _told_of_sender(error: BaseException) -> SyncError:
    if isinstance(error, SyncError):
        return error
    return SyncError(f"the trainer could not send its weights: {type(error).__name__}: {error}")
