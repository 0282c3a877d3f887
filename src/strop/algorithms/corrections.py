"""Corrections of the mismatch between the sampler's log-probs and the trainer's, for the same tokens and weights.

With the importance ratio rho_t = p_old(t) / p_rollout(t) of a token and rho_i, the product over the tokens of sample i:

    weight token        min(rho_t, cap)                      truncated importance sampling
    weight sequence     min(rho_i, cap) on every token of i
    token_band          0 where rho_t is outside             IcePop
    geometric_band      0 where rho_i^(1/|o_i|) is outside   for all tokens of i
    sequence_band       0 where rho_i is outside             for all tokens of i

The factors multiply. They bear no gradient, and what they take away stays in the loss's denominator.
"""

import torch
from torch import Tensor

from strop.algorithms.losses.kernel import MAX_LOG_RATIO, sample_sums
from strop.config.algorithm import CorrectionConfig


def is_active(settings: CorrectionConfig) -> bool:
    """Whether anything is weighted or rejected."""
    bands = (settings.token_band, settings.geometric_band, settings.sequence_band)
    return settings.weight != "none" or any(band is not None for band in bands)


@torch.no_grad()
def correction_weights(
    old_logprobs_N: Tensor,
    rollout_logprobs_N: Tensor,
    sample_ids_N: Tensor,
    num_samples: int,
    settings: CorrectionConfig,
) -> Tensor:
    """Returns what each token's policy loss is multiplied by, [N], before any normalisation over the mini-batch."""
    log_rho_N = old_logprobs_N - rollout_logprobs_N
    log_product_N = sample_sums(log_rho_N, sample_ids_N, num_samples)
    log_geometric_N = log_product_N / sample_sums(torch.ones_like(log_rho_N), sample_ids_N, num_samples)
    weights_N = torch.ones_like(log_rho_N)
    if settings.weight != "none":
        log_weights_N = log_rho_N if settings.weight == "token" else log_product_N
        weights_N = log_weights_N.clamp(max=MAX_LOG_RATIO).exp().clamp(max=settings.weight_cap)
    bands = (
        (log_rho_N, settings.token_band),
        (log_geometric_N, settings.geometric_band),
        (log_product_N, settings.sequence_band),
    )
    for values_N, band in bands:
        if band is not None:
            ratios_N = values_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
            weights_N = weights_N * ((ratios_N >= band[0]) & (ratios_N <= band[1]))
    return weights_N
