r"""OPO: a sample against the mean of its group weighted by length, the baseline of least variance.

    A_i = R_i - sum_j l_j R_j / sum_j l_j

with l_j the sampled tokens of sample j. The baseline that makes the gradient's variance least weighs each return with
the squared norm of its sample's gradient, which is taken to grow with the length.

Source: Hao et al. 2025, arXiv:2505.23585, the practical form of the optimal reward baseline.
Deviations: a group of one gets 0 (verl takes its raw reward). Samples without any token have no weight.
"""

from collections.abc import Sequence

import numpy as np

from strop.algorithms.advantages.moments import Floats, moments
from strop.algorithms.advantages.samples import over_valid, sample_returns, with_sample_advantages
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def opo(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's advantage over the length-weighted mean on its sampled tokens."""
    return [
        with_sample_advantages(
            group, length_weighted_advantages(sample_returns(group), [s.num_sampled_tokens for s in group.samples])
        )
        for group in groups
    ]


def length_weighted_advantages(returns: Sequence[float | None], lengths: Sequence[int]) -> list[float]:
    """Returns return - length-weighted mean of the valid returns; 0 where it is invalid or there is no signal."""
    pairs = zip(returns, lengths, strict=True)
    weights = np.array([length for value, length in pairs if value is not None], dtype=np.float64)
    return over_valid(returns, lambda valid: _compared(valid, weights))


def _compared(valid: Floats, weights: Floats) -> Floats:
    if not weights.any():
        return np.zeros_like(valid)
    return moments(valid, weights=weights).centred(valid)
