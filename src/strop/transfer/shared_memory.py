"""Weights to engines on the same machine, through buckets of memory that both processes see.

    trainer                                    memory                     engine
    wait until bucket k - n is taken
    fill bucket k                    =====>    [0] [1] ... [n - 1]
    tell: k lies there, pieces       - - - - - - - - - - - - - - - ->     chunks of k, in place or copied
                                     <- - - - - - - - - - - - - - - -     taken

The memory is `num_buckets` buckets, whatever the model's size, and stays for the next publication. It has no name: its
descriptor goes over the Unix socket that also carries the messages, so nothing is left behind whoever dies, however;
and the end of a connection tells the other side at once. Where a receiver is slow, the sender waits (back-pressure).
"""

import asyncio
import mmap
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from strop.errors import SyncError
from strop.protocols import RolloutEngine
from strop.records import WeightChunk, WeightReceipt
from strop.transfer.errors import TransferBrokenError
from strop.transfer.pieces import Bucket, LentRoom, Piece, Room, packed, unpacked
from strop.transfer.sending import DEFAULT_BUCKET_BYTES, DEFAULT_TIMEOUT_SECONDS, WeightOutlet
from strop.transfer.source import Weights
from strop.transfer.split import Address
from strop.transfer.wire import Wire, wait_readable

_LOOK_SECONDS = 0.05
_MIN_BUCKETS = 2


class SharedBuckets:
    """Memory of several buckets that other processes can map, too."""

    def __init__(self, descriptor: int, num_buckets: int, bucket_bytes: int) -> None:
        """Maps an open file of this size; the descriptor stays the caller's."""
        self.num_buckets, self.bucket_bytes = num_buckets, bucket_bytes
        self._bytes = torch.frombuffer(mmap.mmap(descriptor, num_buckets * bucket_bytes), dtype=torch.uint8)

    def bucket(self, index: int) -> torch.Tensor:
        """Returns bucket `index` modulo their number, [bucket_bytes] of uint8."""
        start = index % self.num_buckets * self.bucket_bytes
        return self._bytes[start : start + self.bucket_bytes]


class SharedMemorySender:
    """Implements `transfer.SendingHalf`."""

    def __init__(
        self,
        weights: Weights,
        dtype: torch.dtype | None = None,
        *,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
        num_buckets: int = _MIN_BUCKETS,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Takes the trainer's stream; the memory is made at the first publication.

        Args:
            weights: the trainer's stream.
            dtype: the receivers' floating-point type; None sends weights as they are trained.
            bucket_bytes: size of one bucket.
            num_buckets: at least 2, so that one is filled while another is emptied.
            timeout_seconds: bound of every single wait for a receiver.
        """
        if num_buckets < _MIN_BUCKETS or bucket_bytes < 1:
            raise ValueError(
                f"there must be at least {_MIN_BUCKETS} buckets of a byte, got {num_buckets} of {bucket_bytes}"
            )
        self._outlet = WeightOutlet(weights, dtype)
        self._size = (num_buckets, bucket_bytes)
        self._timeout_seconds = timeout_seconds
        self._memory: SharedBuckets | None = None
        self._descriptor: int | None = None
        self._meeting: _Meeting | None = None
        self._lock = threading.Lock()

    def open_stream(self, names: Sequence[str]) -> Address:
        """Listens for receivers of these names."""
        self._meeting = _Meeting(tuple(names), self._timeout_seconds)
        return {
            "type": "shared_memory",
            "socket": str(self._meeting.path),
            # the sender may wait so long for each of them, and must be the one who says for whom
            "timeout_seconds": self._timeout_seconds * (len(names) + 1),
        }

    def send_stream(self, version: int, scale: float) -> WeightReceipt:
        """Sends all weights through the buckets; returns once every receiver has taken the last one."""
        meeting = self._meeting
        if meeting is None:
            raise SyncError("a stream must be opened before it is sent")
        with self._lock, self._outlet.opened(version, scale) as (chunks, account):
            memory, descriptor = self._mapped()
            wires = meeting.all_receivers()
            for wire in wires:
                wire.send({"num_buckets": memory.num_buckets, "bucket_bytes": memory.bucket_bytes})
                wire.send_descriptor(descriptor)
            num_sent = _Ring(memory, wires).send_all(chunks)
            for wire in wires:
                wire.send({"end": num_sent})
            return account.receipt(version)

    async def close_stream(self) -> None:
        """Breaks off what is under way, and gives everything but the memory back."""
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            meeting.break_off()
            await asyncio.get_running_loop().run_in_executor(None, self._close, meeting)

    def _close(self, meeting: "_Meeting") -> None:
        with self._lock:
            meeting.close()

    def _mapped(self) -> tuple[SharedBuckets, int]:
        if self._memory is None or self._descriptor is None:
            self._descriptor = nameless_file(self._size[0] * self._size[1])
            self._memory = SharedBuckets(self._descriptor, *self._size)
        return self._memory, self._descriptor


class _Ring:
    """The sender's view of the buckets: which were taken by whom."""

    def __init__(self, memory: SharedBuckets, wires: Sequence[Wire]) -> None:
        self._memory = memory
        self._wires = wires
        self._num_taken = [0] * len(wires)
        self._num_filled = 0

    def send_all(self, chunks: Iterator[WeightChunk]) -> int:
        """Sends a stream; returns how many buckets it took, all of which every receiver has taken."""
        for _, pieces in packed(chunks, self._next_buffer):
            message = {"bucket": self._num_filled, "pieces": [piece.to_json() for piece in pieces]}
            for wire in self._wires:
                wire.send(message)
            self._num_filled += 1
        self._wait_until_taken(self._num_filled)
        return self._num_filled

    def _next_buffer(self) -> torch.Tensor:
        self._wait_until_taken(self._num_filled - self._memory.num_buckets + 1)
        return self._memory.bucket(self._num_filled)

    def _wait_until_taken(self, num_buckets: int) -> None:
        for index, wire in enumerate(self._wires):
            while self._num_taken[index] < num_buckets:
                wire.receive("take a bucket of weights")
                self._num_taken[index] += 1


class _Meeting:
    """A socket in a folder of its own, at which the receivers of one stream ask for it."""

    def __init__(self, names: tuple[str, ...], timeout_seconds: float) -> None:
        self._names = names
        self._timeout_seconds = timeout_seconds
        self._folder = Path(tempfile.mkdtemp(prefix="strop-"))
        self.path = self._folder / "weights"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.path))
        self._socket.listen(len(names))
        self._wires: dict[str, Wire] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def all_receivers(self) -> list[Wire]:
        """Waits until every receiver has asked; nobody can ask afterwards. Raises SyncError naming who did not."""
        deadline = time.monotonic() + self._timeout_seconds
        try:
            while missing := [name for name in self._names if name not in self._wires]:
                if self._is_closed:
                    raise TransferBrokenError("the stream was broken off")
                if time.monotonic() > deadline:
                    raise SyncError(f"{', '.join(missing)} must ask for the weights within {self._timeout_seconds:g} s")
                if wait_readable(self._socket, _LOOK_SECONDS):
                    self._admit()
        finally:
            self._socket.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        return [self._wires[name] for name in self._names]

    def _admit(self) -> None:
        connection, _ = self._socket.accept()
        name = Wire(connection, "a receiver", self._timeout_seconds).receive("say its name")["name"]
        wire = Wire(connection, name, self._timeout_seconds)
        if name not in self._names or name in self._wires:
            wire.close()
            raise SyncError(f"receivers must be {', '.join(self._names)}, each once, got {name}")
        with self._lock:
            self._wires[name] = wire
            if self._is_closed:
                wire.shut()

    def break_off(self) -> None:
        """Ends every connection and wait; may be called from another thread."""
        with self._lock:
            self._is_closed = True
            for wire in self._wires.values():
                wire.shut()

    def close(self) -> None:
        """Gives the sockets and the folder back, once no other thread waits for receivers."""
        self._socket.close()
        for wire in self._wires.values():
            wire.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class SharedMemoryReceiver:
    """Implements `transfer.ReceivingHalf`; one a process, since the engine's loop stands still while it receives."""

    def __init__(self, engine: RolloutEngine, *, lend: bool = False) -> None:
        """Takes the engine.

        `lend` hands out tensors that lie in the shared memory and are overwritten after the next one is taken: one
        copy less, for engines that copy every weight as it comes. Others would end up with mixtures. Memory for the
        largest tensor then stays, too.
        """
        self._engine = engine
        self._room = LentRoom() if lend else Room()

    async def receive_stream(self, address: Address, name: str, version: int) -> WeightReceipt:
        """Takes the stream that is met at `address`."""
        wire = _connected(address)
        try:
            wire.send({"name": name})
            shape = wire.receive("begin with the weights")
            descriptor = wire.receive_descriptor()
            try:
                memory = SharedBuckets(descriptor, shape["num_buckets"], shape["bucket_bytes"])
            finally:
                os.close(descriptor)
            chunks = unpacked(_buckets(wire, memory), version, self._room)
            return await self._engine.receive_weights(chunks, version)
        finally:
            wire.shut()
            wire.close()


def _connected(address: Address) -> Wire:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address["socket"])
    except OSError as error:
        connection.close()
        raise SyncError(
            f"shared memory needs sampler and trainer on one machine, the socket {address['socket']} cannot be "
            f"reached from {socket.gethostname()}: {error}",
            "Use another transfer, such as broadcast.",
        ) from error
    return Wire(connection, "the trainer", address["timeout_seconds"])


def _buckets(wire: Wire, memory: SharedBuckets) -> Iterator[Bucket]:
    """Yields the buckets as they are filled; each is given back when the next one is asked for."""
    num_taken = 0
    while True:
        message = wire.receive("send the next bucket of weights")
        if "end" in message:
            if message["end"] != num_taken:
                raise SyncError(f"{message['end']} buckets were sent, got {num_taken}")
            return
        yield memory.bucket(message["bucket"]), [Piece.from_json(piece) for piece in message["pieces"]]
        num_taken += 1
        wire.send({"taken": num_taken})


def nameless_file(num_bytes: int) -> int:
    """Returns the descriptor of memory without a name; of an unlinked temporary file where the system has none."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("strop-weights")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, num_bytes)
    return descriptor
