r"""Clip-Cov: no gradient for a few of the tokens that take entropy away.

    covariance  c_it = (A_i - mean A) (log p(t) - mean log p)        means over the mini-batch
    token loss  l_it = 0 for a share of 2e-4 of all tokens, drawn among those with 1 < c_it < 5; else PPO's
    loss             = 1/N sum_i sum_t l_it

A likely token with a high advantage makes the policy surer of itself. A handful of tokens have covariances far above
all others, and leaving out some of them keeps entropy from collapsing.

Computed by `algorithms/advantages/group.py`, `algorithms/losses/covariance.py` and `algorithms/aggregation.py`.

Source: Cui et al. 2025, "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models",
arXiv:2505.22617, section 4.2; numbers of the authors' script for a 7B model, whose clip of ratios is as wide as here
(0 to 2), so that the covariance alone restrains.
Deviations: shares and means are of the mini-batch, not of a micro-batch. The authors' scripts leave out groups without
signal as well; here that is `drop_zero_signal`.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("clip_cov", loss="clip_cov", clip_low=1.0, clip_high=1.0, aggregation="token_mean")
