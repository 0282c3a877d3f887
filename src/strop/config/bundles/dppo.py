r"""DPPO: a trust region by the divergence of distributions instead of by ratios.

    advantage   A_i  = (r_i - mean(r)) / (std(r) + 1e-6)
    token loss  l_it = -M_it w_it A_i        M_it = 0 where |p_new(t) - p_old(t)| > 0.15 and it would grow further
    loss             = 1/N sum_i sum_t l_it

The ratio of an unlikely token is large long before its distribution has moved; that of a likely one hardly moves at
all. The total variation, with all other tokens in one bucket, treats both alike.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/dppo.py` and `algorithms/aggregation.py`; `loss =
"dppo_kl"` with bounds of 0.05 is the paper's other form.

Source: Qi et al. 2026, arXiv:2602.04879, equations 12 to 14, with the bound of the authors' recipe.
Deviations: the paper compares with the policy that sampled: set `correction.policies = 2` for that.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("dppo", loss="dppo_tv", clip_low=0.15, clip_high=0.15, aggregation="token_mean")
