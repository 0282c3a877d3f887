r"""MaxRL: a sample against the mean of its group, in units of that mean.

    A_i = (R_i - mean(R)) / mean(|R|)

With rewards 0 and 1, the mean over n samples of A_i grad log p_i is, K being how many succeed,

    1/K sum_{i: R_i = 1} grad log p_i - 1/n sum_i grad log p_i        and 0 for K = 0

whose expectation is the gradient of log(pass rate) cut after n - 1 terms, sum_{k < n} grad pass@k / k (after n terms if
the second sum stood for K = 0 too): hard prompts weigh more than in GRPO, in the limit as in maximum likelihood.

Source: Tajwar et al. 2026, arXiv:2602.02710, the on-policy estimator with its control variate.
Deviations: the paper has rewards 0 and 1, for which mean(|R|) is mean(R); so it is for all rewards of at least 0. With
negative rewards the mean may be 0 or change the sign of everything: that of the magnitudes cannot, and bounds every
advantage by n + 1. The authors' code divides by mean(R) and an epsilon.
"""

from collections.abc import Sequence

import numpy as np

from strop.algorithms.advantages.moments import Floats, power_of_two_near
from strop.algorithms.advantages.samples import over_valid, sample_returns, with_sample_advantages
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def maxrl(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's advantage in units of the group mean on its sampled tokens."""
    return [with_sample_advantages(group, maxrl_advantages(sample_returns(group))) for group in groups]


def maxrl_advantages(returns: Sequence[float | None]) -> list[float]:
    """Returns (return - mean) / mean magnitude of the valid returns; 0 where it is invalid or there is no signal."""
    return over_valid(returns, _compared)


def _compared(valid: Floats) -> Floats:
    scaled = valid / power_of_two_near(valid)
    found: Floats = (scaled - scaled.mean()) / np.abs(scaled).mean()
    return found
