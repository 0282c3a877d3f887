r"""ReMax: a sample against what the policy says greedily.

    A_t = r + sum_{t' >= t} k_t' - b

with the sample's reward r, the reward b of the greedy sample of its prompt, and what the tokens earned of their own
k_t (a KL term in the reward; 0 without one).

A sample is compared with no other of its group: equal rewards are no reason for 0 here, only a reward equal to the
baseline is, and a group of one is as good as any.

Source: Li et al. 2023, arXiv:2310.10505, algorithm 1. As in verl, a token's own reward counts for the tokens up to it.
Deviations: where the greedy sample has no valid reward there is nothing to compare with: all samples of the group get
0, and `num_without_baseline` says how often that was.
"""

from collections.abc import Sequence

import numpy as np

from strop.algorithms.advantages.moments import Floats
from strop.algorithms.advantages.samples import (
    discounted_sums,
    is_valid,
    trajectory_rewards,
    with_trajectory_advantages,
)
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group, Sample


def remax(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts reward-to-go less the greedy sample's reward on each sampled token.

    Raises ValueError where a group has no greedy sample at all.
    """
    return [_compared(group) for group in groups]


def num_without_baseline(groups: Sequence[Group]) -> int:
    """How many groups teach nothing because their greedy sample has no valid reward."""
    return sum(_baseline_reward(group) is None for group in groups)


def _compared(group: Group) -> Group:
    baseline = _baseline_reward(group)
    return with_trajectory_advantages(group, [_advantages(sample, baseline) for sample in group.samples])


def _advantages(sample: Sample, baseline: float | None) -> Floats | None:
    if baseline is None or sample.reward is None or not is_valid(sample):
        return None
    with np.errstate(over="ignore"):
        return discounted_sums(trajectory_rewards(sample, float(np.subtract(sample.reward, baseline))), 1.0)


def _baseline_reward(group: Group) -> float | None:
    if group.baseline is None:
        raise ValueError(
            f"every group must have a greedy baseline for remax, got none for prompt {group.prompt.prompt_id!r}; "
            "sample one greedily for each prompt, as `Algorithm.needs.greedy_baseline` asks"
        )
    return group.baseline.reward if is_valid(group.baseline) else None
