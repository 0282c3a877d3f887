r"""OPO: On-Policy RL with Optimal reward baseline.

    advantage   A_i  = r_i - sum_j l_j r_j / sum_j l_j        l_j: tokens of sample j
    token loss  l_it = -A_i log p_new(t)
    loss             = 1/N sum_i sum_t l_it

The baseline of least variance, if the gradient of a sample grows with its length; and exactly on-policy updates, so
neither ratio nor clip, neither KL nor entropy term.

Computed by `algorithms/advantages/opo.py`, `algorithms/losses/reinforce.py` and `algorithms/aggregation.py`.

Source: Hao et al. 2025, "On-Policy RL with Optimal Reward Baseline", arXiv:2505.23585.
Deviations: one update a batch is the default and not enforced.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("opo", advantage="opo", loss="reinforce", aggregation="token_mean")
