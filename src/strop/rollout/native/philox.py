"""Philox4x32-10, the counter-based generator of Random123, vectorised over samples.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A sample's stream is
named by its `StreamKey`; the token index is the counter. There is no state: token i of a stream draws the same
number in whatever batch, engine or order it is served.
"""

import hashlib
import json
from typing import Final

import numpy as np
from numpy.typing import NDArray

from strop.records import StreamKey

NUM_ROUNDS: Final = 10
_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS: Final = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW_BITS: Final = np.uint64(0xFFFFFFFF)
_WORD_BITS: Final = np.uint64(32)


def philox4x32(counters_B4: NDArray[np.uint32], keys_B2: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Returns [B, 4] random words, a function of the [B, 4] counters and [B, 2] keys alone."""
    c0, c1, c2, c3 = counters_B4.astype(np.uint64).T
    k0, k1 = keys_B2.astype(np.uint64).T
    for _ in range(NUM_ROUNDS):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> _WORD_BITS) ^ c1 ^ k0,
            second & _LOW_BITS,
            (first >> _WORD_BITS) ^ c3 ^ k1,
            first & _LOW_BITS,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW_BITS, (k1 + _KEY_STEPS[1]) & _LOW_BITS
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def stream_words(stream: StreamKey) -> NDArray[np.uint32]:
    """Returns the [2] key words of a stream: a BLAKE2b digest of its fields, in an unambiguous encoding."""
    fields = [stream.seed, stream.prompt_id, stream.visit, stream.sample_index, stream.purpose]
    digest = hashlib.blake2b(json.dumps(fields).encode(), digest_size=8).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32)


def uniforms(keys_B2: NDArray[np.uint32], token_indices_B: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns [B] numbers in [0, 1) with 53 random bits: one for each stream's token of the given index."""
    counters_B4 = np.zeros((len(keys_B2), 4), dtype=np.uint32)
    counters_B4[:, 0] = token_indices_B
    words = philox4x32(counters_B4, keys_B2).astype(np.uint64)
    bits = ((words[:, 0] >> np.uint64(5)) << np.uint64(26)) | (words[:, 1] >> np.uint64(6))
    return bits.astype(np.float64) * 2.0**-53
