r"""GSPO: Group Sequence Policy Optimization, GRPO with ratios and clips of whole samples.

    advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-6)
    ratio       s_i = (p_new(o_i) / p_old(o_i))^(1 / |o_i|)
    loss            = 1/S sum_i -min(s_i A_i, clip(s_i, 1 - 3e-4, 1 + 4e-4) A_i)

A reward is of a whole answer, so its ratio is too; a length in the exponent keeps ratios of long and short answers
alike. They stay much nearer to 1 than those of tokens: hence the bounds.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/gspo.py` and `algorithms/aggregation.py`.

Source: Zheng et al. 2025, arXiv:2507.18071, equations 5 to 7; bounds of its section 5.1.
Deviations: as for GRPO, the standard deviation divides by n - 1. The paper has four updates a batch; here it is one
unless `training.updates_per_batch` says otherwise, and with one the bounds have nothing to hold.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("gspo", loss="gspo", clip_low=3e-4, clip_high=4e-4)
