r"""GSPO: ratios and clips of whole sequences (Zheng et al. 2025, arXiv:2507.18071, equations 5, 7 and 14).

    s_i = (p_new(o_i) / p_old(o_i))^(1 / |o_i|) = exp(mean_t log w_{i,t})
    l_t = -min(s_{i,t} A_t, clip(s_{i,t}, 1 - low, 1 + high) A_t)

with s_{i,t} of the value s_i and the gradient of the token's own ratio (GSPO-token): averaged over the tokens of a
sequence this is equation 5, in value and gradient. Bounds of the paper's experiments: low 3e-4, high 4e-4. A sequence
is a sample: all of its rows.

Deviations: token ratios are held within e^-20 and e^20 before the mean (verl bounds s_i by e^10, TRL nothing). TRL
differentiates s_i itself, which is the same for one advantage a sample.
"""

from strop.algorithms.losses.kernel import Terms, TokenLosses, clipped
from strop.config.bundles import ResolvedAlgorithm


def gspo_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the loss of each token by the ratio of its sequence."""
    return clipped(terms.geometric_ratio(terms.log_ratio_N), terms.advantages_N, settings)
