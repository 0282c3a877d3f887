r"""GDPO: Group reward-Decoupled normalisation Policy Optimization, GRPO for several rewards.

    of a reward k   A_k,i = (r_k,i - mean(r_k)) / (std(r_k) + 1e-6)        over the group
    advantage       A_i   = (S_i - mean(S)) / (std(S) + 1e-6)              S_i = sum_k w_k A_k,i, over the batch
    token loss      l_it  = -min(w_it A_i, clip(w_it, 1 - 0.2, 1 + 0.2) A_i)
    loss                  = 1/S sum_i 1/|o_i| sum_t l_it

GRPO adds rewards up first, so that different mixtures of them have the same advantage, and the one of widest scale
drowns the others. With one reward the difference is the second normalisation.

Computed by `algorithms/advantages/gdpo.py`, `algorithms/losses/clip.py` and `algorithms/aggregation.py`; the weights
w_k are those of the entries of `rewards`.

Source: Liu et al. 2026, arXiv:2601.05242.
Deviations: those of the estimator. No KL term unless `kl_coefficient` is set.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("gdpo", advantage="gdpo")
