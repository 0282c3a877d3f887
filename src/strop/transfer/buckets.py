"""Buckets of weight chunks with a bound in bytes, for transports that pay for each message."""

from collections.abc import Iterable, Iterator

from strop.records import WeightChunk


def chunk_bytes(chunk: WeightChunk) -> int:
    """Returns the size of a chunk's tensor."""
    return chunk.tensor.numel() * chunk.tensor.element_size()


def buckets(chunks: Iterable[WeightChunk], max_bytes: int) -> Iterator[tuple[WeightChunk, ...]]:
    """Groups chunks, in order, into buckets of at most `max_bytes`; a larger chunk travels alone.

    Takes from the stream only what the next bucket and one chunk behind it need.
    """
    if max_bytes < 1:
        raise ValueError(f"a bucket must have room for at least 1 byte, got {max_bytes}")
    bucket: list[WeightChunk] = []
    bucket_bytes = 0
    for chunk in chunks:
        num_bytes = chunk_bytes(chunk)
        if bucket and bucket_bytes + num_bytes > max_bytes:
            yield tuple(bucket)
            bucket, bucket_bytes = [], 0
        bucket.append(chunk)
        bucket_bytes += num_bytes
    if bucket:
        yield tuple(bucket)
