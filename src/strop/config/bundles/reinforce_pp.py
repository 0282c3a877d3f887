r"""REINFORCE++: PPO's loss without a critic, advantages normalised over the whole batch.

    return      G_it = sum_{t' >= t} gamma^(t' - t) r_it'        the reward on the last token, a KL penalty on each
    advantage   A_it = (G_it - mean(G)) / std(G)                 over all tokens of the batch
    token loss  l_it = -min(w_it A_it, clip(w_it, 1 - 0.2, 1 + 0.2) A_it)
    loss             = 1/N sum_i sum_t l_it

No group is needed: prompts are compared with one another.

Computed by `algorithms/advantages/reinforce_pp.py`, `algorithms/losses/clip.py` and `algorithms/aggregation.py`.

Source: Hu et al. 2025, "REINFORCE++: An Efficient RLHF Algorithm with Robustness to Both Prompt and Reward Models",
arXiv:2501.03262.
Deviations: the paper takes a KL penalty by k1 off each token's reward; here there is none unless `kl_coefficient` is
set, with `kl_placement = "reward"` and `kl_estimator = "k1"` for the paper's.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("reinforce_pp", advantage="reinforce_pp", aggregation="token_mean")
