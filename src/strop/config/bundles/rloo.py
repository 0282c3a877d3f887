r"""RLOO: REINFORCE Leave-One-Out, a sample against the mean of the others.

    advantage   A_i  = r_i - 1/(n-1) sum_{j != i} r_j
    token loss  l_it = -A_i log p_new(t)
    loss             = 1/S sum_i sum_t l_it

The whole answer is one action: its log-prob is the sum over its tokens. The baseline does not depend on the sample, so
the gradient is unbiased.

Computed by `algorithms/advantages/leave_one_out.py`, `algorithms/losses/reinforce.py` and `algorithms/aggregation.py`.

Source: Ahmadian et al. 2024, "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback
in LLMs", arXiv:2402.14740; the estimator: Kool et al. 2019.
Deviations: the paper takes a KL penalty off the reward; here there is none unless `kl_coefficient` is set, with
`kl_placement = "reward"` and `kl_estimator = "k1"` for the paper's. TRL's RLOO has such a penalty by default (0.05),
and clips the ratio of whole sequences for several updates a batch.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("rloo", advantage="rloo", loss="reinforce", aggregation="sequence_mean_token_sum")
