r"""Optimal token baseline: each token against the mean of its group that makes the gradient's variance least.

    A_i,t = G_i,t - sum_j G_j,t W_j,t / sum_j W_j,t
    W_j,t = sum_{t' <= t} (1 - 2 p_j,t' + c_j,t')

over the samples j of the group that have a t-th sampled token, with the return G_j,t from token t on, the old policy's
probability p of the sampled token and the sum c of its squared probabilities over the vocabulary: 1 - 2p + c is the
squared norm of the gradient by the logits, so W is how uncertain the sample has been so far.

Source: Li et al. 2026, arXiv:2602.07078, with its logit-gradient proxy; verl's page on the optimal token baseline.
As in verl's `tir_optimal_token_baseline`, t counts sampled tokens over all turns.
Deviations: where one sample alone goes on, the formula would compare it with itself and teach nothing; verl takes no
baseline there, which makes the advantage depend on where rewards have their zero. Here the last baseline that two
samples share stays. Where no sample was uncertain (all W are 0) the plain mean is taken. Importance weights are not in
W. A group of one gets 0.
Reads `old_logprobs` and `collisions` of the rows.
"""

from collections.abc import Sequence

import numpy as np

from strop.algorithms.advantages.moments import Floats, bounded
from strop.algorithms.advantages.samples import (
    discounted_sums,
    is_valid,
    trajectory_field,
    trajectory_rewards,
    with_trajectory_advantages,
)
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group, Sample


def optimal_token_baseline(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts return-to-go less the group's baseline of its place on each sampled token.

    Raises ValueError where a row of a valid sample lacks `old_logprobs` or `collisions`.
    """
    return [_compared(group) for group in groups]


def energies(old_logprobs: Floats, collisions: Floats) -> Floats:
    """Returns W, [n]: the running sum of the squared norms of the gradient by the logits."""
    return np.cumsum(np.maximum(1 - 2 * np.exp(old_logprobs) + collisions, 0.0))


def token_baselines(returns: Sequence[Floats], weights: Sequence[Floats]) -> Floats:
    """Returns the baseline of each place, [longest of all], from returns and energies of each sample, [n] each.

    Takes two samples at least, with one token each at least.
    """
    lengths = sorted((len(values) for values in returns), reverse=True)
    shared = lengths[1]
    returns_ST = np.stack([_padded(values, shared) for values in returns])
    weights_ST = np.stack([_padded(values, shared) for values in weights])
    weights_ST = np.where(np.isnan(returns_ST), 0.0, weights_ST)
    weights_ST = np.where(weights_ST.sum(axis=0) > 0, weights_ST, ~np.isnan(returns_ST))
    lowest_T = np.nanmin(returns_ST, axis=0)
    above_ST = np.nan_to_num(returns_ST - lowest_T)
    baselines = lowest_T + (above_ST * (weights_ST / weights_ST.sum(axis=0))).sum(axis=0)
    return np.pad(baselines, (0, lengths[0] - shared), mode="edge")


def _compared(group: Group) -> Group:
    valid = [sample for sample in group.samples if is_valid(sample) and sample.num_sampled_tokens]
    if len(valid) < 2:
        return with_trajectory_advantages(group, [None] * len(group.samples))
    returns = {sample.index: _returns(sample) for sample in valid}
    weights = [
        energies(trajectory_field(sample, "old_logprobs"), trajectory_field(sample, "collisions")) for sample in valid
    ]
    baselines = token_baselines([returns[sample.index] for sample in valid], weights)
    found = (returns.get(sample.index) for sample in group.samples)
    return with_trajectory_advantages(
        group, [None if values is None else values - baselines[: len(values)] for values in found]
    )


def _returns(sample: Sample) -> Floats:
    return bounded(discounted_sums(trajectory_rewards(sample, sample.reward or 0.0), 1.0))


def _padded(values: Floats, length: int) -> Floats:
    return np.pad(values[:length], (0, max(0, length - len(values))), constant_values=np.nan)
