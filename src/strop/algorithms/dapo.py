r"""DAPO: Decoupled Clip and Dynamic Sampling Policy Optimization (Yu et al. 2025, arXiv:2503.14476).

Four changes to GRPO:

    clip-higher           clip(w_it, 1 - 0.2, 1 + 0.28): more room for unlikely tokens to grow
    dynamic sampling      groups whose rewards are all equal are left out and more prompts sampled, within
                          `max_sampling_rounds`; what was found by then is trained on
    token-level loss      1/N sum over all N tokens of the mini-batch, whatever sample they are in
    overlong filtering    samples cut by the budget are masked, in the denominator too

Deviation: the paper tries filtering first and ends with its soft overlong punishment, which needs two lengths that
fit the task. This bundle filters; `truncated = "soft-overlong"` punishes instead (`truncation.py`).
"""

from strop.algorithms.grpo import Grpo


class Dapo(Grpo):
    """DAPO: the parts of GRPO under the settings that `config.bundles` gives this name."""
