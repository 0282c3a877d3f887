r"""Dr.GRPO: GRPO done right, without two of its biases.

    advantage   A_i = r_i - mean(r)             no division by the std, which favours too easy and too hard prompts
    loss            = 1/(S L) sum_i sum_t l_it  a constant L in place of |o_i|, which favoured long wrong answers

with the token loss l_it of GRPO. L is `constant_length`, or `rollout.max_new_tokens` where that is left out.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/clip.py` and `algorithms/aggregation.py`.

Source: Liu et al. 2025, "Understanding R1-Zero-Like Training: A Critical Perspective", arXiv:2503.20783, section 3.2
and its code, where L is the completion budget.
Deviations: none. TRL's `loss_type="dr_grpo"` has the same constant and needs `scale_rewards="none"` beside it.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("dr_grpo", advantage_std="none", aggregation="constant")
