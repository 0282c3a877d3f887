"""Name accounting: every weight that was sent was consumed exactly once, and is what was sent.

A probe of log-probs cannot replace this: a sequence need not touch every expert.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from strop.records import WeightChunk, WeightReceipt
from strop.transfer.checksum import checksums_agree, weight_checksum


class SendingAccount:
    """Keeps the sender's books while chunks stream past."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._checksums: list[float] = []

    def recorded(self, chunks: Iterable[WeightChunk], version: int) -> Iterator[WeightChunk]:
        """Passes chunks on and notes each. Raises ValueError for a chunk of another version."""
        for chunk in chunks:
            if chunk.version != version:
                raise ValueError(f"{chunk.name} must be of version {version}, got {chunk.version}")
            self._names.append(chunk.name)
            self._checksums.append(weight_checksum(chunk.tensor))
            yield chunk

    def receipt(self, version: int) -> WeightReceipt:
        """Returns what was sent."""
        return WeightReceipt(version, tuple(self._names), tuple(self._checksums))


def discrepancies(sent: WeightReceipt, received: WeightReceipt) -> list[str]:
    """Returns one line for each way in which what arrived is not what was sent; none where the books balance."""
    lines = []
    if received.version != sent.version:
        lines.append(f"version {sent.version} was sent, the receiver holds {received.version}")
    sent_count, received_count = Counter(sent.names), Counter(received.names)
    lines += [f"{name} was sent {count} times" for name, count in sent_count.items() if count > 1]
    lines += [f"{name} was sent and not consumed" for name in sent_count if name not in received_count]
    lines += [f"{name} was consumed {count} times" for name, count in received_count.items() if count > 1]
    lines += [f"{name} was consumed and never sent" for name in received_count if name not in sent_count]
    held = dict(zip(received.names, received.checksums, strict=True))
    for name, checksum in zip(sent.names, sent.checksums, strict=True):
        if name in held and not checksums_agree(checksum, held[name]):
            lines.append(f"{name} has checksum {held[name]!r} in the receiver, {checksum!r} was sent")
    return lines
