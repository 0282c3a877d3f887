r"""Pass@k training: several samples share the reward of their best, so that it pays to try different things.

    advantage   A_i  = (E[max_{j in S} r_j | i in S] - mean) / std        over the subsets S of k of the n samples
    token loss  l_it = -min(w_it A_i, clip(w_it, 1 - 0.2, 1 + 0.2) A_i)
    loss             = 1/N sum_i sum_t l_it

k is `pass_k`, 4 here, and must be below `rollout.group_size`.

Computed by `algorithms/advantages/pass_at_k.py`, `algorithms/losses/clip.py` and `algorithms/aggregation.py`.

Source: Chen et al. 2025, "Pass@k Training for Adaptively Balancing Exploration and Exploitation of Large Reasoning
Models", arXiv:2508.10751, the analytical derivation.
Deviations: the paper leaves the loss around the advantage open; here it is PPO's clip and the mean over tokens. Rewards
other than 0 and 1 are taken as they are. verl's `grpo_passk` is another method: it rewards the best sample alone.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("pass_at_k", advantage="pass_at_k", aggregation="token_mean")
