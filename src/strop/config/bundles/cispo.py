r"""CISPO: Clipped Importance Sampling Policy Optimization.

    advantage   A_i  = (r_i - mean(r)) / (std(r) + 1e-6)
    token loss  l_it = -sg[clip(w_it, 1 - low, 1 + high)] A_i log p_new(t)
    loss             = 1/N sum_i sum_t l_it

The weight is clipped, not the update: every token keeps its gradient, also the rare ones on which reasoning turns.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/cispo.py` and `algorithms/aggregation.py`.

Source: MiniMax 2025, MiniMax-M1, arXiv:2506.13585, equations 4 and 5.
Deviations: the paper has no lower bound, which `clip_low = 1` says, and does not publish its upper one. Here weights
are at most 5 (`clip_high = 4`), as ScaleRL (Khatri et al. 2025, arXiv:2510.13786) and TRL recommend. TRL writes that
bound as `epsilon_high=5.0`.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("cispo", loss="cispo", clip_low=1.0, clip_high=4.0, aggregation="token_mean")
