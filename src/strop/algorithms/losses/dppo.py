r"""DPPO: a trust region by divergence instead of by ratio (Qi et al. 2026, arXiv:2602.04879, equations 12 to 14).

    l_t = -M_t w_t A_t,    M_t = 0 where D_t exceeds its bound and the update would move the policy further away:
                                 A_t > 0, w_t > 1, D_t > high    or    A_t < 0, w_t < 1, D_t > low

    binary TV:  D_t = |p_new(t) - p_old(t)|
    binary KL:  D_t = p_old log(p_old / p_new) + (1 - p_old) log((1 - p_old) / (1 - p_new))

Both see the sampled token and all others in one bucket. The mask has no gradient. Bounds of the authors' recipe for
verl: 0.15 with TV, 0.05 with KL (`clip_low` and `clip_high`; the bundle has those of TV). The recipe divides no
advantage by a standard deviation and sums tokens over a constant length, and so does the bundle.

Deviations: the paper compares with the policy that sampled; that is `correction.policies = 2` here, and the old policy
else. verl truncates w_t, at 20 unless told otherwise; here, as in that recipe, it is all but unbounded (e^20).
"""

import torch
from torch import Tensor

from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm


def dppo_tv_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the loss of each token, masked by binary total variation."""
    return _masked(terms, _binary_tv(terms), settings)


def dppo_kl_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the loss of each token, masked by binary KL divergence."""
    return _masked(terms, _binary_kl(terms), settings)


def _masked(terms: Terms, divergence_N: Tensor, settings: ResolvedAlgorithm) -> TokenLosses:
    gap_N, advantages_N = terms.log_ratio_N.detach(), terms.advantages_N
    below_N = (advantages_N < 0) & (gap_N < 0) & (divergence_N > settings.clip_low)
    above_N = (advantages_N > 0) & (gap_N > 0) & (divergence_N > settings.clip_high)
    losses_N = -terms.ratio_N * advantages_N * ~(below_N | above_N)
    return TokenLosses(losses_N, below_N, above_N)


@torch.no_grad()
def _binary_tv(terms: Terms) -> Tensor:
    return (terms.new_logprobs_N.exp() - terms.base_logprobs_N.exp()).abs()


@torch.no_grad()
def _binary_kl(terms: Terms) -> Tensor:
    new_N, old_N = terms.new_logprobs_N, terms.base_logprobs_N
    log_others_N = _log_others(old_N) - _log_others(new_N)
    return old_N.exp() * (old_N - new_N) - torch.expm1(old_N) * log_others_N


def _log_others(logprobs_N: Tensor) -> Tensor:
    """The log of what the other tokens share; finite where the sampled one takes all that the format can tell."""
    return (-torch.expm1(logprobs_N)).clamp_min(torch.finfo(logprobs_N.dtype).tiny).log()
