r"""SAPO: Soft Adaptive Policy Optimization, a smooth gate in the place of the clip.

    advantage   A_i  = (r_i - mean(r)) / (std(r) + 1e-6)
    token loss  l_it = -4/tau sigmoid(tau (w_it - 1)) A_i        tau = 1.0 where A_i > 0, 1.05 elsewhere
    loss             = 1/S sum_i 1/|o_i| sum_t l_it

A token far off policy loses its gradient gradually, sooner where its advantage is negative.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/sapo.py` and `algorithms/aggregation.py`.

Source: Gao et al. 2025, arXiv:2511.20347, with its temperatures.
Deviations: the standard deviation divides by n - 1, which the paper leaves open.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("sapo", loss="sapo")
