r"""SAPO: a soft gate in the clip's place (Gao et al. 2025, arXiv:2511.20347).

    l_t = -f_t(w_t) A_t,    f_t(x) = 4 / tau_t sigmoid(tau_t (x - 1))

with tau_t the positive temperature where A_t > 0 and the negative one elsewhere. The gradient by log p_new(t) is
-4 q_t (1 - q_t) w_t A_t with q_t = sigmoid(tau_t (w_t - 1)): A_t's own on-policy, and less and less of it away from
there. Temperatures of the paper: 1.0 and 1.05, a faster decay where the advantage is negative.

Deviation: ratios are held within e^-20 and e^20, as in verl.
"""

import torch

from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm


def sapo_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the gated loss of each token."""
    positive_N = torch.full_like(terms.ratio_N, settings.positive_temperature)
    temperatures_N = torch.where(terms.advantages_N > 0, positive_N, settings.negative_temperature)
    gates_N = 4 / temperatures_N * torch.sigmoid(temperatures_N * (terms.ratio_N - 1))
    return TokenLosses(-gates_N * terms.advantages_N)
