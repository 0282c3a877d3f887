r"""GRPO: Group Relative Policy Optimization.

For a prompt with samples i = 1..G and rewards r_i, each sampled token t of sample i has

    advantage   A_i  = (r_i - mean(r)) / (std(r) + 1e-6)
    ratio       w_it = exp(log p_new(t) - log p_old(t))
    token loss  l_it = -min(w_it A_i, clip(w_it, 1 - low, 1 + high) A_i) + beta KL_it
    loss             = 1/S sum_i 1/|o_i| sum_t l_it        over the S samples of a mini-batch

Computed by `algorithms/advantages/group.py`, `algorithms/losses/clip.py`, `algorithms/kl.py` and
`algorithms/aggregation.py`. On the first update after sampling, p_old is p_new and the ratio is exactly 1.

Source: Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, equations 3 and 4.
Deviations: beta is 0 unless `kl_coefficient` is set (the paper has 0.04), as practice since has found the KL term
dispensable for verifiable rewards. The standard deviation divides by n - 1, which the paper leaves open. The paper does
not state its clip; 0.2 is PPO's. A group whose rewards are all equal gives exactly 0. TRL's `loss_type="grpo"` is the
same but for an epsilon of 1e-4; TRL's default is the loss of DAPO. verl's default aggregation is the mean over tokens.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("grpo")
