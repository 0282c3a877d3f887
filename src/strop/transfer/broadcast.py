"""Weights from trainer rank 0 to engines on any machine, by collectives of a group of their own.

    trainer, rank 0                                        engines, ranks 1 ... n
    store: rendezvous of this one publication  <---------  join
    for each bucket:  length, what lies in it, bytes ====> broadcast ====> chunks
                      0                              ====> end

The group is made for one publication and shares nothing with the groups of training or of an engine's workers, so a
restarted engine simply joins the next. Two buckets on each side: one travels while the other is filled or emptied.
"""

import asyncio
import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence

import torch

from strop.errors import SyncError
from strop.protocols import RolloutEngine
from strop.records import WeightChunk, WeightReceipt
from strop.transfer.errors import TransferBrokenError
from strop.transfer.group import BroadcastGroup, PrefixStore, TCPStore, Travel, open_store
from strop.transfer.pieces import Bucket, LentRoom, Piece, Room, packed, unpacked
from strop.transfer.sending import DEFAULT_BUCKET_BYTES, DEFAULT_TIMEOUT_SECONDS, WeightOutlet
from strop.transfer.source import Weights
from strop.transfer.split import Address

_LOOK_SECONDS = 0.02
_NUM_BUFFERS = 2


class BroadcastSender:
    """Implements `transfer.SendingHalf`."""

    def __init__(
        self,
        weights: Weights,
        dtype: torch.dtype | None = None,
        *,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
        host: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Takes the trainer's stream.

        Args:
            weights: the trainer's stream.
            dtype: the receivers' floating-point type; None sends weights as they are trained.
            bucket_bytes: size of one bucket; each side holds two.
            host: the name by which engines reach this machine; None takes its own name.
            timeout_seconds: bound of every single wait for a receiver.
        """
        self._outlet = WeightOutlet(weights, dtype)
        self._bucket_bytes = bucket_bytes
        self._host = host or socket.gethostname()
        self._timeout_seconds = timeout_seconds
        self._store: TCPStore | None = None
        self._gathering: _Gathering | None = None
        self._lock = threading.Lock()

    def open_stream(self, names: Sequence[str]) -> Address:
        """Opens a rendezvous for receivers of these names, at a port that the system chooses."""
        if self._store is None:
            self._store = open_store(self._host, 0, is_owner=True, timeout_seconds=self._timeout_seconds)
        meeting = uuid.uuid4().hex
        self._gathering = _Gathering(PrefixStore(meeting, self._store), tuple(names), self._timeout_seconds)
        return {
            "type": "broadcast",
            "host": self._host,
            "port": self._store.port,
            "meeting": meeting,
            "names": list(names),
            "bucket_bytes": self._bucket_bytes,
            "timeout_seconds": self._timeout_seconds,
        }

    def send_stream(self, version: int, scale: float) -> WeightReceipt:
        """Broadcasts all weights once every receiver has joined."""
        gathering = self._gathering
        if gathering is None:
            raise SyncError("a stream must be opened before it is sent")
        with self._lock, self._outlet.opened(version, scale) as (chunks, account):
            try:
                _BucketSender(gathering.complete(), self._bucket_bytes).send_all(chunks)
            except BaseException:
                gathering.leave()
                raise
            return account.receipt(version)

    async def close_stream(self) -> None:
        """Breaks off what is under way; the store stays for the next publication.

        Where weights travel already, a receiver that failed has ended its connections, which ends the rest.
        """
        gathering, self._gathering = self._gathering, None
        if gathering is not None:
            gathering.give_up()
            await asyncio.get_running_loop().run_in_executor(None, self._leave, gathering)

    def _leave(self, gathering: "_Gathering") -> None:
        with self._lock:
            gathering.leave()


class _Gathering:
    """The receivers of one publication, as they join."""

    def __init__(self, store: PrefixStore, names: tuple[str, ...], timeout_seconds: float) -> None:
        self._store = store
        self._names = names
        self._timeout_seconds = timeout_seconds
        self._group: BroadcastGroup | None = None
        self._is_closed = False

    def complete(self) -> BroadcastGroup:
        """Waits until everybody has joined and makes the group. Raises SyncError naming who did not join."""
        deadline = time.monotonic() + self._timeout_seconds
        while missing := [name for name in self._names if not self._store.check([f"joined/{name}"])]:
            if self._is_closed:
                raise TransferBrokenError("the stream was broken off")
            if time.monotonic() > deadline:
                raise SyncError(f"{', '.join(missing)} must join the broadcast within {self._timeout_seconds:g} s")
            time.sleep(_LOOK_SECONDS)
        self._store.set("begin", "1")
        self._group = BroadcastGroup(self._store, 0, len(self._names) + 1, self._timeout_seconds)
        return self._group

    def give_up(self) -> None:
        """Ends the wait for receivers, and theirs for the beginning; may be called from another thread."""
        self._is_closed = True
        self._store.set("closed", "1")

    def leave(self) -> None:
        """Ends the connections, once there are any."""
        if self._group is not None:
            self._group.leave()


class _BucketSender:
    """Fills one buffer while the other travels."""

    def __init__(self, group: BroadcastGroup, bucket_bytes: int) -> None:
        self._group = group
        self._buffers = [torch.empty(bucket_bytes, dtype=torch.uint8) for _ in range(_NUM_BUFFERS)]
        self._travelling: list[tuple[int, Travel]] = []
        self._num_filled = 0

    def send_all(self, chunks: Iterator[WeightChunk]) -> None:
        """Broadcasts a stream and its end."""
        for buffer, pieces in packed(chunks, self._next_buffer):
            header = json.dumps([piece.to_json() for piece in pieces]).encode()
            used = buffer[: pieces[-1].place + pieces[-1].num_bytes]
            self._send(torch.tensor([len(header), len(used)]))
            self._send(torch.frombuffer(bytearray(header), dtype=torch.uint8))
            self._send(used)
            self._num_filled += 1
        self._send(torch.zeros(2, dtype=torch.int64))
        self._wait_up_to(self._num_filled)

    def _send(self, tensor: torch.Tensor) -> None:
        if len(tensor):
            self._travelling.append((self._num_filled, self._group.broadcast(tensor)))

    def _next_buffer(self) -> torch.Tensor:
        """Waits until what lies in the buffer that comes next has arrived."""
        self._wait_up_to(self._num_filled - _NUM_BUFFERS)
        return self._buffers[self._num_filled % _NUM_BUFFERS]

    def _wait_up_to(self, bucket: int) -> None:
        for index, travel in self._travelling:
            if index <= bucket:
                travel.wait()
        self._travelling = [(index, travel) for index, travel in self._travelling if index > bucket]


class BroadcastReceiver:
    """Implements `transfer.ReceivingHalf`."""

    def __init__(self, engine: RolloutEngine, *, lend: bool = False) -> None:
        """Takes the engine; `lend` as in `SharedMemoryReceiver`."""
        self._engine = engine
        self._room = LentRoom() if lend else Room()

    async def receive_stream(self, address: Address, name: str, version: int) -> WeightReceipt:
        """Joins the group that is made at `address` and takes the stream."""
        group = await asyncio.get_running_loop().run_in_executor(None, _join, address, name)
        try:
            chunks = unpacked(_buckets(group, address["bucket_bytes"]), version, self._room)
            return await self._engine.receive_weights(chunks, version)
        finally:
            group.leave()


def _join(address: Address, name: str) -> BroadcastGroup:
    """Joins as soon as the trainer begins. Raises TransferBrokenError where it gave up."""
    seconds = address["timeout_seconds"]
    try:
        whole = open_store(address["host"], address["port"], is_owner=False, timeout_seconds=seconds)
        store = PrefixStore(address["meeting"], whole)
        store.set(f"joined/{name}", "1")
        _wait_for_begin(store, seconds)
        rank = address["names"].index(name) + 1
        return BroadcastGroup(store, rank, len(address["names"]) + 1, seconds)
    except RuntimeError as error:  # what torch raises for everything in a store
        raise TransferBrokenError(
            f"the trainer at {address['host']}:{address['port']} does not answer: {error}"
        ) from error


def _wait_for_begin(store: PrefixStore, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not store.check(["begin"]):
        if store.check(["closed"]):
            raise TransferBrokenError("the trainer broke the broadcast off")
        if time.monotonic() > deadline:
            raise TransferBrokenError(f"the broadcast must begin within {seconds:g} s, it did not")
        time.sleep(_LOOK_SECONDS)


def _buckets(group: BroadcastGroup, bucket_bytes: int) -> Iterator[Bucket]:
    """Yields buckets as they come; the next one is under way while one is used."""
    buffers = [torch.empty(bucket_bytes, dtype=torch.uint8) for _ in range(_NUM_BUFFERS)]
    index, coming = 0, _next_bucket(group, buffers[0])
    while coming is not None:
        pieces, travel = coming
        if travel is not None:
            travel.wait()
        coming = _next_bucket(group, buffers[(index + 1) % _NUM_BUFFERS])
        yield buffers[index % _NUM_BUFFERS], pieces
        index += 1


def _next_bucket(group: BroadcastGroup, buffer: torch.Tensor) -> tuple[list[Piece], Travel | None] | None:
    """Learns what comes next and lets its bytes travel into the buffer; None at the end."""
    sizes = torch.zeros(2, dtype=torch.int64)
    group.broadcast(sizes).wait()
    header_bytes, num_bytes = sizes.tolist()
    if not header_bytes:
        return None
    header = torch.empty(header_bytes, dtype=torch.uint8)
    group.broadcast(header).wait()
    pieces = [Piece.from_json(values) for values in json.loads(bytes(header.tolist()))]
    return pieces, group.broadcast(buffer[:num_bytes]) if num_bytes else None
