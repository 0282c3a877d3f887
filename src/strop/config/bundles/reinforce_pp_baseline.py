r"""REINFORCE++ with baseline: the group's mean taken off first, then normalised over the whole batch.

    centred     c_i  = r_i - mean(r)                             over the group
    return      G_it = sum_{t' >= t} gamma^(t' - t) c_it'        c_i on the last token, a KL penalty on each
    advantage   A_it = (G_it - mean(G)) / std(G)                 over all tokens of the batch
    token loss  l_it = -min(w_it A_it, clip(w_it, 1 - 0.2, 1 + 0.2) A_it)
    loss             = 1/N sum_i sum_t l_it

The mean of a group says how hard its prompt is; the deviation of the batch, unlike a group's own, weighs easy and hard
prompts alike.

Computed by `algorithms/advantages/reinforce_pp.py`, `algorithms/losses/clip.py` and `algorithms/aggregation.py`.

Source: Hu et al. 2025, arXiv:2501.03262, the variant with baseline.
Deviations: the paper adds a KL term by k2 to the loss; here there is none unless `kl_coefficient` is set, with
`kl_estimator = "k2"` for the paper's.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("reinforce_pp_baseline", advantage="reinforce_pp_baseline", aggregation="token_mean")
