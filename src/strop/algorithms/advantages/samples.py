"""What estimators share: a sample's whole return, tokens' own rewards, and advantages put on rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strop.records import Group, Row, Sample


def sample_return(sample: Sample) -> float | None:
    """The reward of a sample with what its tokens earned of their own; None where the reward is invalid."""
    if sample.reward is None:
        return None
    return sample.reward + sum(float(token_rewards(row).sum()) for row in sample.rows)


def token_rewards(row: Row) -> NDArray[np.float64]:
    """What each token of a row earned of its own, [T]; 0 where nothing was said."""
    own = row.fields.get("token_rewards")
    return np.zeros(row.num_tokens) if own is None else own.astype(np.float64)


def with_sample_advantages(group: Group, advantages: Sequence[float]) -> Group:
    """Returns the group with one advantage a sample on all of its sampled tokens."""
    pairs = zip(group.samples, advantages, strict=True)
    return group.with_samples([sample.with_token_advantage(advantage) for sample, advantage in pairs])
