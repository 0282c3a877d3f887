"""Corrections of the mismatch between the sampler's log-probs and the trainer's, for the same tokens and weights.

With the importance ratio rho_t = p_old(t) / p_rollout(t) of a token and rho_i, the product over the tokens of sample i:

    weight token        min(rho_t, cap)                      truncated importance sampling (1)
    weight sequence     min(rho_i, cap) on every token of i  (2)
    token_band          0 where rho_t is outside             IcePop (3)
    geometric_band      0 where rho_i^(1/|o_i|) is outside   for all tokens of i (2)
    sequence_band       0 where rho_i is outside             for all tokens of i (2)
    normalise           all divided by their mean over the tokens of the mini-batch

The factors multiply. They bear no gradient, and what they take away stays in the loss's denominator. IcePop as it was
published weights by rho_t within the band [0.5, 5]: `weight token` with a cap of 5 and that `token_band`.

Three policies: the loss has the ratio new / old and these factors correct old / rollout. Two policies: the loss has the
ratio new / rollout, in which old / rollout is contained, so only bands make sense.

Sources: (1) Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training",
https://fengyao.notion.site/off-policy-rl; (2) Liu, Li et al. 2025, "When speed kills stability",
https://richardli.xyz/rl-collapse; (3) Ling Team 2025, "Every Step Evolves", arXiv:2510.18855.

Deviations: verl takes rejected tokens out of the loss's denominator, here `normalise` has that effect; it divides the
weights of a sequence by their mean over sequences, here over tokens; it has a veto of samples with a token of extreme
ratio, for which `token_band` and `sequence_band` stand here. TRL's modes `token_mask` and `sequence_mask` are the
weight and the band of the same level.
"""

import math
from collections.abc import Sequence

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
    for log_ratios_N, band in bands:
        if band is not None:
            weights_N = weights_N * _is_within(log_ratios_N, band)
    return weights_N


def _is_within(log_ratios_N: Tensor, band: Sequence[float]) -> Tensor:
    """Compares logarithms, so that no ratio overflows or is cut before it is judged."""
    low, high = (math.log(bound) if bound > 0 else -math.inf for bound in band)
    return (log_ratios_N >= low) & (log_ratios_N <= high)


def normalised(weights: Sequence[Tensor]) -> list[Tensor]:
    """Returns the weights of a mini-batch's micro-batches, [N] each, divided by their mean over all tokens.

    They then have the mean 1. Where all are 0 (everything is rejected) or there are none, they stay as they are.
    """
    total, count = sum(float(weights_N.sum()) for weights_N in weights), sum(len(weights_N) for weights_N in weights)
    scale = total / count if total > 0 else 1.0
    return [weights_N / scale for weights_N in weights]
