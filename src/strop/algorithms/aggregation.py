"""Aggregation: how token losses become one number.

Every aggregation is a weight a token, fixed over the whole mini-batch before the first micro-batch. The
loss is then the plain sum of weight times loss, which no micro-batching, packing or number of processes
can change. Samples count, not rows: a sample of several rows has one weight for all its tokens.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

Key = TypeVar("Key")

Aggregation = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"]


def token_weights(num_tokens: Mapping[Key, int], aggregation: Aggregation, constant_length: int) -> dict[Key, float]:
    """Returns the weight of each sampled token, by sample.

    Args:
        num_tokens: sampled tokens of each sample that bears loss; samples that are masked (truncated,
            invalid) must not be in it, so that they are in no denominator either. Empty samples do not count.
        aggregation: token_mean: 1 / all tokens (DAPO). sequence_mean_token_mean: 1 / (samples x own
            tokens) (GRPO). sequence_mean_token_sum: 1 / samples. constant: 1 / (samples x constant) (Dr.GRPO).
        constant_length: the divisor of `constant`.
    """
    counts = {key: count for key, count in num_tokens.items() if count > 0}
    num_samples, num_all = len(counts), sum(counts.values())
    match aggregation:
        case "token_mean":
            return dict.fromkeys(counts, 1 / num_all) if counts else {}
        case "sequence_mean_token_mean":
            return {key: 1 / (num_samples * count) for key, count in counts.items()}
        case "sequence_mean_token_sum":
            return dict.fromkeys(counts, 1 / num_samples) if counts else {}
        case "constant":
            return dict.fromkeys(counts, 1 / (num_samples * constant_length)) if counts else {}
