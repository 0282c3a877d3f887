r"""RAFT: Reward rAnked FineTuning, supervised training on the best of the policy's own samples.

    advantage   A_i  = 1 for the best sample of a group, 0 for all others
    token loss  l_it = -A_i log p_new(t)
    loss             = 1/N sum_i sum_t l_it

Computed by `algorithms/advantages/best_of_n.py`, `algorithms/losses/reinforce.py` and `algorithms/aggregation.py`.

Source: Dong et al. 2023, "RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment", arXiv:2304.06767,
algorithm 1.
Deviations: nothing is learnt from a group without signal, nor from one whose best reward is not above 0. N counts the
tokens of all samples, so that the loss is smaller than a mean over the best ones by the share of their tokens; AdamW
makes that nearly the same. The paper takes many updates on what it collected; here `training.updates_per_batch` and
`training.epochs_per_batch` say how many.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("raft", advantage="best_of_n", loss="reinforce", aggregation="token_mean")
