r"""GDPO: every reward is normalised in its group by itself, then they are added and normalised over the batch.

    A_k,i = (r_k,i - mean(r_k)) / (std(r_k) + 1e-6)        over the group, one reward part k at a time
    S_i = sum_k w_k A_k,i
    A_i = (S_i - mean(S)) / (std(S) + 1e-6)                over the samples of the batch that bear loss

so that rewards of other scale or difficulty do not drown each other, and different mixtures of them differ.

It reads the parts of a reward and their weights, also what truncation or length cost (a part as any other); a sample
without parts has its reward for its only one. A part that says nothing of a sample (None), or the same of all samples
of a group, adds 0 there.

Source: Liu et al. 2026, arXiv:2601.05242, the decoupled normalisation and the batch-wise one after it.
Deviations: `advantage_std` says by what the group's variance is divided (`none` leaves its division out), and n - 1 is
taken for the batch, as in TRL; TRL adds 1e-4 to deviations. verl normalises over the batch token by token, which weighs
long samples more. As in the paper the batch's mean is taken off all samples: a group without signal is not at exactly 0
unless the whole batch is; `drop_zero_signal` leaves such groups out. What tokens earned of their own is no part of a
reward and is not read.
"""

from collections.abc import Sequence

import numpy as np

from strop.algorithms.advantages.group import EPSILON, group_advantages
from strop.algorithms.advantages.moments import moments
from strop.algorithms.advantages.samples import bears_loss, is_valid, with_sample_advantages
from strop.config.algorithm import GroupStd
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group, RewardPart, Sample


def gdpo(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's normalised sum of normalised rewards on its sampled tokens."""
    sums = [decoupled_sums(group.samples, settings.advantage_std) for group in groups]
    counted = [
        value
        for group, of_group in zip(groups, sums, strict=True)
        for sample, value in zip(group.samples, of_group, strict=True)
        if bears_loss(sample, settings)
    ]
    over_batch = moments(np.array(counted, dtype=np.float64), degrees_lost=1)
    return [
        with_sample_advantages(
            group,
            [
                float(value) if is_valid(sample) else 0.0
                for sample, value in zip(
                    group.samples, over_batch.standardised(np.array(of_group), EPSILON), strict=True
                )
            ],
        )
        for group, of_group in zip(groups, sums, strict=True)
    ]


def decoupled_sums(samples: Sequence[Sample], std: GroupStd) -> list[float]:
    """Returns the weighted sum over the reward parts of each sample's group advantage; 0 where it is invalid."""
    parts = [_parts(sample) for sample in samples]
    names = dict.fromkeys(name for of_sample in parts for name in of_sample)
    total = np.zeros(len(samples))
    for name in names:
        said = [of_sample.get(name, _UNSAID) for of_sample in parts]
        advantages = np.array(group_advantages([part.value for part in said], std))
        total += np.array([part.weight for part in said]) * advantages
    return total.tolist()


_UNSAID = RewardPart(None)


def _parts(sample: Sample) -> dict[str, RewardPart]:
    if not is_valid(sample):
        return {}
    return sample.reward_parts or {"reward": RewardPart(sample.reward)}
