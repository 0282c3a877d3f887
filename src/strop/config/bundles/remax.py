r"""ReMax: REINFORCE against what the policy says greedily.

    advantage   A_i  = r_i - r(greedy answer to the same prompt)
    token loss  l_it = -A_i log p_new(t)
    loss             = 1/S sum_i sum_t l_it

One more answer a prompt, sampled greedily and never trained on, stands for the value of the prompt. No sample is
compared with another, so `rollout.group_size = 1` works.

Computed by `algorithms/advantages/remax.py`, `algorithms/losses/reinforce.py` and `algorithms/aggregation.py`.

Source: Li et al. 2023, "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large
Language Models", arXiv:2310.10505, algorithm 1.
Deviations: no KL penalty unless `kl_coefficient` is set; in the reward (`kl_placement`) it counts for the tokens up to
each. Several samples a prompt share one greedy answer.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("remax", advantage="remax", loss="reinforce", aggregation="sequence_mean_token_sum")
