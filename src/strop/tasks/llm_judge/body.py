"""The body of a server's answer, read piece by piece up to a limit: what it sends is not trusted.

pieces --(limit)--> gzip, deflate --(limit)--> bytes of UTF-8
"""

import zlib
from collections.abc import AsyncIterator

from strop.tasks.llm_judge.engine import JudgeError

MAX_BODY_BYTES = 8 * 2**20
"""No answer of a judge is as long as this, also when it is unpacked."""
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_SHOWN_CHARACTERS = 40


class BodyReader:
    """Takes the pieces of one body; raises JudgeError where it is too long, or packed in a way that is not read."""

    def __init__(self, encoding: str, max_bytes: int = MAX_BODY_BYTES) -> None:
        kind = encoding.strip().lower()
        if kind not in ("", "identity", *_WINDOW_BITS):
            raise JudgeError(
                f"the judge's server must send plain bytes, gzip or deflate, got {kind[:_SHOWN_CHARACTERS]!r}"
            )
        self._unpacker = zlib.decompressobj(_WINDOW_BITS[kind]) if kind in _WINDOW_BITS else None
        self._max_bytes = max_bytes
        self._body = bytearray()

    async def read(self, pieces: AsyncIterator[bytes]) -> bytes:
        """Returns the whole body."""
        num_sent = 0
        async for piece in pieces:
            num_sent += len(piece)
            if num_sent > self._max_bytes:
                raise self._too_long()
            self._add(piece)
        if self._unpacker is not None and num_sent and not self._unpacker.eof:
            raise JudgeError("the judge's server must send what it says it sends: the packed body is cut")
        return bytes(self._body)

    def _add(self, piece: bytes) -> None:
        if self._unpacker is not None:
            try:
                piece = self._unpacker.decompress(piece, self._max_bytes + 1 - len(self._body))
            except zlib.error as error:
                raise JudgeError(f"the judge's server must send what it says it sends: {error}") from error
        self._body += piece
        if len(self._body) > self._max_bytes:
            raise self._too_long()

    def _too_long(self) -> JudgeError:
        return JudgeError(f"the judge's server must answer with at most {self._max_bytes} bytes, got more")
