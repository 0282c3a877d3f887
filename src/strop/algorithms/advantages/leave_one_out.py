r"""RLOO: a sample against the mean of the others of its group.

    A_i = R_i - 1/(n-1) sum_{j != i} R_j = n/(n-1) (R_i - mean(R))

The baseline does not depend on the sample, so it adds no bias: in expectation the plain group mean has (n-1)/n of this
gradient. The whole completion is one action: what its tokens earned of their own is part of R_i.

Source: Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!"; for language models Ahmadian et al. 2024,
arXiv:2402.14740.
Deviations: a group of one gets 0, since it has no others (verl takes its raw reward, TRL refuses it).
"""

from collections.abc import Sequence

from strop.algorithms.advantages.moments import moments
from strop.algorithms.advantages.samples import over_valid, sample_returns, with_sample_advantages
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def rloo(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's leave-one-out advantage on its sampled tokens."""
    return [with_sample_advantages(group, leave_one_out_advantages(sample_returns(group))) for group in groups]


def leave_one_out_advantages(returns: Sequence[float | None]) -> list[float]:
    """Returns return - mean of the other valid returns; 0 where it is invalid or there is no other."""
    return over_valid(returns, lambda valid: moments(valid).centred(valid) * (len(valid) / (len(valid) - 1)))
