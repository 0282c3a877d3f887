r"""KL-Cov: a KL penalty on the tokens that take the most entropy away.

    covariance  c_it = (A_i - mean A) (log p(t) - mean log p)        means over the mini-batch
    token loss  l_it = -w_it A_i + |log w_it|        for the share of 2e-3 of all tokens with the largest c_it
                l_it = -w_it A_i                     for all others
    loss             = 1/N sum_i sum_t l_it

Computed by `algorithms/advantages/group.py`, `algorithms/losses/covariance.py` and `algorithms/aggregation.py`;
`penalty` is the factor of the second term.

Source: Cui et al. 2025, "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models",
arXiv:2505.22617, section 4.3; numbers of the authors' script for a 7B model.
Deviations: shares and means are of the mini-batch, not of a micro-batch. The authors' scripts leave out groups without
signal as well; here that is `drop_zero_signal`. With one update a batch the ratio is 1 and the penalty is at its least,
without a gradient: the method needs `training.updates_per_batch` above 1.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("kl_cov", loss="kl_cov", covariance_share=2e-3, aggregation="token_mean")
