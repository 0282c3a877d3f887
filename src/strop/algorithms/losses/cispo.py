r"""CISPO: a clipped importance weight in front of REINFORCE (MiniMax 2025, arXiv:2506.13585).

    l_t = -sg[clip(w_t, 1 - low, 1 + high)] A_t log p_new(t)

No token loses its gradient: the bounds limit its weight. MiniMax-M1 has no lower bound and does not publish its upper
one. The bundle has low 1, which bounds nothing, and high 4: weights of at most 5, as ScaleRL (Khatri et al. 2025,
arXiv:2510.13786) and TRL recommend. verl takes the bounds of its PPO, 0.8 and 1.2, unless told otherwise.
"""

from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm


def cispo_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the loss of each token, by its clipped weight."""
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    ratio_N = terms.ratio_N.detach()
    losses_N = -ratio_N.clamp(low, high) * terms.advantages_N * terms.new_logprobs_N
    return TokenLosses(losses_N, below_N=ratio_N < low, above_N=ratio_N > high)
