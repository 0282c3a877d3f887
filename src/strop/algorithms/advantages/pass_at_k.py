r"""Pass@k training: k samples share the reward of their best, over all subsets of k at once.

    A_i = (E[max_{j in S} R_j | i in S] - mean) / std        over the subsets S of k of the n samples of a group

with mean and std those of max_{j in S} R_j over all C(n, k) subsets. For rewards 0 and 1, with m of n samples at 0,
this is the analytic form of the paper:

    mean = 1 - C(m, k) / C(n, k)        std = sqrt(mean (1 - mean))
    A(1) = (1 - mean) / std             A(0) = (1 - mean - C(m-1, k-1) / C(n-1, k-1)) / std

Source: Chen et al. 2025, arXiv:2508.10751, the analytical derivation (equations 14 and 15).
Deviations: rewards other than 0 and 1 are taken as they are, by the first line (the paper has 0 and 1 only; both agree
there). A group of at most k valid samples has one subset at most, so nothing to compare: it gets 0, as does one where
every subset has the same best. verl's `grpo_passk` is another method: it rewards the best sample alone, with its lead
over the second.
"""

from collections.abc import Sequence
from math import comb

import numpy as np

from strop.algorithms.advantages.moments import Floats, power_of_two_near
from strop.algorithms.advantages.samples import over_valid, sample_returns, with_sample_advantages
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def pass_at_k(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's pass@k advantage on its sampled tokens."""
    return [
        with_sample_advantages(group, pass_at_k_advantages(sample_returns(group), settings.pass_k)) for group in groups
    ]


def pass_at_k_advantages(returns: Sequence[float | None], k: int) -> list[float]:
    """Returns the advantage of each sample from the best of all subsets of k; 0 where it is invalid."""
    return over_valid(returns, lambda valid: _compared(valid, k))


def _compared(valid: Floats, k: int) -> Floats:
    num_samples = len(valid)
    order = np.argsort(valid, kind="stable")
    ascending = valid[order] / power_of_two_near(valid)
    if num_samples <= k or ascending[k - 1] == ascending[-1]:
        return np.zeros_like(valid)
    shares = np.array([comb(rank, k - 1) / comb(num_samples, k) for rank in range(num_samples)])
    mean = float((shares * ascending).sum())
    deviation = float((shares * np.square(ascending - mean)).sum()) ** 0.5
    found = np.empty_like(valid)
    found[order] = (_best_with_each(ascending, k) - mean) / deviation
    return found


def _best_with_each(ascending: Floats, k: int) -> Floats:
    """The mean best of the subsets of k that hold each sample: itself where it beats all others, else a better one."""
    num_samples = len(ascending)
    num_subsets = comb(num_samples - 1, k - 1)
    itself = np.array([comb(rank, k - 1) / num_subsets for rank in range(num_samples)])
    better = np.array([comb(rank - 1, k - 2) / num_subsets if k > 1 and rank else 0.0 for rank in range(num_samples)])
    from_better_on = np.cumsum((better * ascending)[::-1])[::-1]
    best: Floats = itself * ascending + np.append(from_better_on[1:], 0.0)
    _, first, of_value = np.unique(ascending, return_index=True, return_inverse=True)
    return best[first][of_value]
