r"""GPG: Group Policy Gradient, REINFORCE with a group's mean for a baseline and nothing else.

    advantage   A_i  = alpha (r_i - mean(r))        alpha = valid samples / valid samples of groups with signal
    token loss  l_it = -A_i log p_new(t)
    loss             = 1/N sum_i sum_t l_it

No ratio, no clip, no reference. alpha makes up for groups that teach nothing and are in the denominator all the same.

Computed by `algorithms/advantages/gpg.py`, `algorithms/losses/reinforce.py` and `algorithms/aggregation.py`.

Source: Chu et al. 2025, "GPG: A Simple and Strong Reinforcement Learning Baseline", arXiv:2504.02546.
Deviations: where too few groups have signal the paper waits for another batch; here `drop_zero_signal` samples more.
Without a ratio it is a policy gradient on the first update of a batch only.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("gpg", advantage="gpg", advantage_std="none", loss="gpg", aggregation="token_mean")
