r"""REINFORCE: advantage times log-prob, no ratio and no bound (Williams 1992, Machine Learning 8, pages 229 to 256).

    l_t = -A_t log p_new(t)

GPG (Chu et al. 2025, arXiv:2504.02546) is this loss with the advantages of `advantages/gpg.py`. Without a
ratio it is a policy gradient only while the policy is the one that sampled: several updates a batch make it a weighted
likelihood. verl's `gpg` is the same; TRL has no such loss.
"""

from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm


def reinforce_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the loss of each token."""
    return TokenLosses(-terms.advantages_N * terms.new_logprobs_N)
