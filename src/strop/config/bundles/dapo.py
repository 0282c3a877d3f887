r"""DAPO: Decoupled Clip and Dynamic Sampling Policy Optimization.

Four changes to GRPO, whose advantage and token loss l_it it keeps:

    clip-higher           clip(w_it, 1 - 0.2, 1 + 0.28): more room for unlikely tokens to grow
    dynamic sampling      groups whose rewards are all equal are left out and more prompts sampled
    token-level loss      1/N sum_i sum_t l_it over all N tokens of the mini-batch, whatever sample they are in
    overlong filtering    samples cut by their budget are masked, in the denominator too

Rounds of sampling in a step are bounded by `max_sampling_rounds`, 10 where it is left out. What was found by then is
trained on; a step that finds nothing ends the run and says why.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/clip.py`, `algorithms/aggregation.py`,
`algorithms/shaping.py` and `algorithms/policy_gradient.py` (`select`).

Source: Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", arXiv:2503.14476.
Deviations: the paper tries filtering first and ends with its soft overlong punishment, which needs two lengths that fit
the task. This bundle filters; `truncated = "soft-overlong"` punishes instead. The paper samples until the batch is
full, without a bound.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("dapo", clip_high=0.28, aggregation="token_mean", drop_zero_signal=True, truncated="mask")
