r"""Optimal token baseline: each token against the mean of its group that makes the gradient's variance least.

    advantage   A_it = G_it - sum_j G_jt W_jt / sum_j W_jt        W_jt = sum_{t' <= t} (1 - 2 p_jt' + c_jt')
    token loss  l_it = -min(w_it A_it, clip(w_it, 1 - 0.2, 1 + 0.2) A_it)
    loss             = 1/N sum_i sum_t l_it

with the return G from token t on, the old policy's probability p of the sampled token and the sum c of its squared
probabilities over the vocabulary: W is how uncertain a sample has been so far.

Computed by `algorithms/advantages/optimal_token_baseline.py`, `algorithms/losses/clip.py` and
`algorithms/aggregation.py`. It needs one pass of the policy over the batch before the first update.

Source: Li et al. 2026, arXiv:2602.07078, with its logit-gradient proxy; verl's page on the optimal token baseline.
Deviations: those of the estimator. The loss around it is verl's default.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("otb", advantage="optimal_token_baseline", aggregation="token_mean")
