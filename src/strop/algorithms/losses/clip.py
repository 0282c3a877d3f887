r"""PPO's clipped loss with separate bounds (Schulman et al. 2017, arXiv:1707.06347, equation 7).

    l_t = -min(w_t A_t, clip(w_t, 1 - low, 1 + high) A_t),    w_t = exp(log p_new(t) - log p_old(t))

Separate bounds: DAPO, Yu et al. 2025, arXiv:2503.14476. Dual clip (Ye et al. 2020, arXiv:1912.09729): where A_t < 0 the
loss is at most -c A_t, so that a token that became far likelier than it was cannot rule the update. verl always clips
dually with c = 3, TRL's `delta` is c; here it is off unless `dual_clip` is set.
"""

import torch

from strop.algorithms.losses.kernel import Terms, TokenLosses, clipped
from strop.config.bundles import ResolvedAlgorithm


def clip_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the clipped loss of each token."""
    found = clipped(terms.ratio_N, terms.advantages_N, settings)
    if settings.dual_clip is None:
        return found
    is_negative_N = terms.advantages_N < 0
    bound_N = -settings.dual_clip * terms.advantages_N
    losses_N = torch.where(is_negative_N, torch.minimum(found.losses_N, bound_N), found.losses_N)
    beyond_N = (terms.ratio_N > settings.dual_clip) & is_negative_N
    return TokenLosses(losses_N, found.below_N, beyond_N if found.above_N is None else found.above_N | beyond_N)
