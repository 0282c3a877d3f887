"""Short messages over a Unix socket, each with a time limit; the other side's death is an error at once."""

import json
import select
import socket
import time
from typing import Any

from strop.transfer.errors import TransferBrokenError

_LENGTH_BYTES = 4
Message = dict[str, Any]


class Wire:
    """One connection to the other side, called `peer` in errors."""

    def __init__(self, connection: socket.socket, peer: str, timeout_seconds: float) -> None:
        connection.settimeout(timeout_seconds)
        self._connection = connection
        self.peer = peer
        self._timeout_seconds = timeout_seconds

    def send(self, message: Message) -> None:
        """Sends plain values. Raises TransferBrokenError where the other side is gone or does not read."""
        data = json.dumps(message).encode()
        try:
            self._connection.sendall(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        except TimeoutError as error:
            raise self._late("read a message") from error
        except OSError as error:
            raise self._gone(error) from error

    def receive(self, awaited: str) -> Message:
        """Waits for a message; `awaited` says for what, in errors. Raises TransferBrokenError as `send` does."""
        deadline = time.monotonic() + self._timeout_seconds
        length = int.from_bytes(self._exactly(_LENGTH_BYTES, awaited, deadline), "big")
        message: Message = json.loads(self._exactly(length, awaited, deadline))
        return message

    def send_descriptor(self, descriptor: int) -> None:
        """Gives the other side an open file of this process."""
        try:
            socket.send_fds(self._connection, [b"d"], [descriptor])
        except OSError as error:
            raise self._gone(error) from error

    def receive_descriptor(self) -> int:
        """Takes an open file over; the caller closes it."""
        try:
            _, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        except TimeoutError as error:
            raise self._late("give its memory") from error
        except OSError as error:
            raise self._gone(error) from error
        if not descriptors:
            raise self._gone(None)
        return descriptors[0]

    def shut(self) -> None:
        """Ends the connection, and with it every wait on it, on both sides; the socket stays until `close`."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side was quicker

    def close(self) -> None:
        """Gives the socket back."""
        self._connection.close()

    def _exactly(self, num_bytes: int, awaited: str, deadline: float) -> bytes:
        parts: list[bytes] = []
        while num_bytes:
            try:
                self._connection.settimeout(max(deadline - time.monotonic(), 1e-3))
                part = self._connection.recv(num_bytes)
            except TimeoutError as error:
                raise self._late(awaited) from error
            except OSError as error:
                raise self._gone(error) from error
            if not part:
                raise self._gone(None)
            parts.append(part)
            num_bytes -= len(part)
        return b"".join(parts)

    def _late(self, awaited: str) -> TransferBrokenError:
        return TransferBrokenError(f"{self.peer} must {awaited} within {self._timeout_seconds:g} s, it did not")

    def _gone(self, error: OSError | None) -> TransferBrokenError:
        why = "it closed the connection" if error is None else str(error)
        return TransferBrokenError(f"{self.peer} went away while weights were sent: {why}")


def wait_readable(listening: socket.socket, seconds: float) -> bool:
    """Whether somebody asks for a connection within so many seconds."""
    return bool(select.select([listening], [], [], seconds)[0])
