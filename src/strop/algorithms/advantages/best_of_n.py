r"""Best of n: the policy learns from the best sample of each prompt alone.

    A_i = 1 for the sample of highest return in its group, 0 for all others

With the plain REINFORCE loss this is supervised training on the best samples of the policy's own: RAFT.

Source: Dong et al. 2023, arXiv:2304.06767, algorithm 1.
Deviations: the paper trains on the best sample of every prompt. Here a group must have signal and its best return must
be above 0, so that nothing is learnt from the least bad of failures, nor by chance from one of equals; a group of one
gets 0. Of several best samples the first of the group is taken.
"""

from collections.abc import Sequence

import numpy as np

from strop.algorithms.advantages.moments import Floats
from strop.algorithms.advantages.samples import over_valid, sample_returns, with_sample_advantages
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def best_of_n(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts 1 on the sampled tokens of each group's best sample and 0 on all others."""
    return [with_sample_advantages(group, best_of_n_advantages(sample_returns(group))) for group in groups]


def best_of_n_advantages(returns: Sequence[float | None]) -> list[float]:
    """Returns 1 for the first of the highest valid returns where it is positive and there is signal, 0 elsewhere."""
    return over_valid(returns, _chosen)


def _chosen(valid: Floats) -> Floats:
    chosen = np.zeros_like(valid)
    best = int(valid.argmax())
    chosen[best] = float(valid[best] > 0)
    return chosen
