"""Frames on a stream socket: eight bytes of length, then the payload."""

import socket
import struct
import time

_LENGTH = struct.Struct("!Q")
MAX_REPLY_BYTES = 64 * 2**20
"""A longer reply than this is not a reply."""
_READ_BYTES = 2**16


class FrameError(ValueError):
    """What arrived is no frame of this protocol."""


def send_frame(connection: socket.socket, payload: bytes) -> None:
    """Sends one frame; raises OSError where the other side is gone or does not read within the socket's timeout."""
    connection.sendall(_LENGTH.pack(len(payload)) + payload)


class FrameReader:
    """Reads frames from a socket, several at once where they have arrived."""

    def __init__(self, connection: socket.socket, max_bytes: int | None = None) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def next(self, deadline: float | None = None) -> bytes:
        """Returns the next frame.

        Raises EOFError where the other side is gone, TimeoutError where `deadline` (time.monotonic) passes first,
        FrameError where a frame is longer than allowed.
        """
        while (frame := self._pop()) is None:
            self._connection.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-4))
            try:
                chunk = self._connection.recv(_READ_BYTES)
            except ConnectionError as error:
                raise EOFError(str(error)) from error
            if not chunk:
                raise EOFError("the other side closed the connection")
            self._buffer += chunk
        return frame

    def _pop(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if self._max_bytes is not None and length > self._max_bytes:
            raise FrameError(f"a reply must have at most {self._max_bytes} bytes, got one of {length}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return frame
