r"""DRO: REINFORCE with a quadratic bound on the log-ratio (Richemond et al. 2024, arXiv:2405.19107).

    l_t = -A_t log p_new(t) + beta / 2 (log p_new(t) - log p_old(t))^2

The paper regresses r - V - beta log(p_new / p_old) to 0 over a whole response, with a learned value V. With A = r - V
held fixed, the gradient of half its square, over beta, is that of the above. Kimi k1.5 (2025, arXiv:2501.12599) has the
same quadratic term. The default beta is 0.05, that of the example in Tinker's documentation of `dro`.

Deviations, both as in Tinker: advantages are those of a group, not the soft ones of a learned value; the quadratic term
is each token's own, so that long responses are not punished by the square of their length.
"""

from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm


def dro_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the loss of each token."""
    gap_N = terms.new_logprobs_N - terms.base_logprobs_N
    return TokenLosses(-terms.advantages_N * terms.new_logprobs_N + 0.5 * settings.penalty * gap_N.square())
