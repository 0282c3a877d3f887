r"""GMPO: Geometric-Mean Policy Optimization, the geometric mean of clipped token ratios.

    advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-6)
    loss            = 1/S sum_i -A_i (prod_t w_it clipped to [e^-0.4, e^0.4])^(1 / |o_i|)

where the clip is pessimistic, as PPO's. A single extreme token moves a geometric mean little, so the bounds can be
wide.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/gmpo.py` and `algorithms/aggregation.py`.

Source: Zhao et al. 2025, arXiv:2507.20673, equation 4 and section 4 (the bounds).
Deviations: `clip_low` and `clip_high` are in log space here, unlike elsewhere, so that 0.4 is the paper's number.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("gmpo", loss="gmpo", clip_low=0.4, clip_high=0.4)
