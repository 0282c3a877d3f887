r"""GMPO: the geometric mean of clipped token ratios (Zhao et al. 2025, arXiv:2507.20673).

    g_i = exp(mean_t m_t),    m_t = min(log w_t, clip(log w_t, -low, high))  where A_t >= 0
                              m_t = max(log w_t, clip(log w_t, -low, high))  where A_t < 0
    l_t = -g_i A_t

Averaged over the tokens of a sequence this is the paper's -g_i A_i, in value and gradient. The bounds are in log space,
unlike PPO's: the paper's section 4 clips ratios to e^-0.4 and e^0.4, so low and high are 0.4.

Deviations: tokens of one sample may have advantages of their own (the paper, verl and TRL take one a sequence); token
ratios are held within e^-20 and e^20. A correction multiplies each token's loss (verl takes its geometric mean).
"""

import torch

from strop.algorithms.losses.kernel import Terms, TokenLosses, held
from strop.config.bundles import ResolvedAlgorithm


def gmpo_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the loss of each token by the geometric mean of its sequence's clipped ratios."""
    log_ratio_N, advantages_N = terms.log_ratio_N, terms.advantages_N
    clamped_N = log_ratio_N.clamp(-settings.clip_low, settings.clip_high)
    pessimistic_N = torch.where(
        advantages_N < 0, torch.maximum(log_ratio_N, clamped_N), torch.minimum(log_ratio_N, clamped_N)
    )
    bounds = held(log_ratio_N, advantages_N, -settings.clip_low, settings.clip_high)
    return TokenLosses(-terms.geometric_ratio(pessimistic_N) * advantages_N, *bounds)
