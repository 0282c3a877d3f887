r"""MaxRL: Maximum Likelihood RL, a sample against its group's mean in units of that mean.

    advantage   A_i  = (r_i - mean(r)) / mean(r)
    token loss  l_it = -min(w_it A_i, clip(w_it, 1 - 0.2, 1 + 0.2) A_i)
    loss             = 1/N sum_i sum_t l_it

In expectation this is the gradient of the log of the pass rate, cut after as many terms as there are samples: what
maximum likelihood would do if right answers could be written down. Hard prompts weigh more than in GRPO.

Computed by `algorithms/advantages/maxrl.py`, `algorithms/losses/clip.py` and `algorithms/aggregation.py`.

Source: Tajwar et al. 2026, "Maximum Likelihood Reinforcement Learning", arXiv:2602.02710.
Deviations: rewards other than 0 and 1 are divided by the mean of their magnitudes. The clip and the mean over tokens
are the defaults of verl, on which the authors' code is built. prime-rl has the same advantage, TRL 1.16 has none of it.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("maxrl", advantage="maxrl", aggregation="token_mean")
