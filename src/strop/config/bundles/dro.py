r"""DRO: Direct Reward Optimisation, a quadratic pull to the old policy in the place of a clip.

    advantage   A_i  = (r_i - mean(r)) / (std(r) + 1e-6)
    token loss  l_it = -A_i log p_new(t) + beta/2 (log p_new(t) - log p_old(t))^2        beta = 0.05
    loss             = 1/S sum_i 1/|o_i| sum_t l_it

Computed by `algorithms/advantages/group.py`, `algorithms/losses/dro.py` and `algorithms/aggregation.py`; beta is
`penalty`.

Source: Richemond et al. 2024, "Offline Regularised Reinforcement Learning for Large Language Models Alignment",
arXiv:2405.19107.
Deviations: the paper is offline and learns a value for each prompt; here the mean of the group stands for it, and the
policy's own samples for the data set, as in Tinker's loss of the same name, whose beta this is. The quadratic term is
each token's own. With one update a batch it is 0, and what is left is REINFORCE.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("dro", loss="dro", penalty=0.05)
