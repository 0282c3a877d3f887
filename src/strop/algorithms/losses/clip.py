r"""PPO's clipped loss with separate bounds (Schulman et al. 2017, arXiv:1707.06347, equation 7).

    l_t = -min(w_t A_t, clip(w_t, 1 - low, 1 + high) A_t),    w_t = exp(log p_new(t) - log p_old(t))

Separate bounds: DAPO, Yu et al. 2025, arXiv:2503.14476. Dual clip (Ye et al. 2020, arXiv:1912.09729, equation 6): where
A_t < 0 the loss is at most -c A_t, so that a token that became far likelier than it was cannot rule the update.
"""

import torch

from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm


def clip_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the clipped loss of each token."""
    ratio_N, advantages_N = terms.ratio_N, terms.advantages_N
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    losses_N = -torch.minimum(ratio_N * advantages_N, ratio_N.clamp(low, high) * advantages_N)
    above_N = (ratio_N > high) & (advantages_N > 0)
    if settings.dual_clip is not None:
        bound_N = -settings.dual_clip * advantages_N
        losses_N = torch.where(advantages_N < 0, torch.minimum(losses_N, bound_N), losses_N)
        above_N = above_N | ((ratio_N > settings.dual_clip) & (advantages_N < 0))
    return TokenLosses(losses_N, below_N=(ratio_N < low) & (advantages_N < 0), above_N=above_N)
