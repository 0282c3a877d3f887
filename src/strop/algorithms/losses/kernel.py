"""What every policy loss shares: ratios, the clip, geometric means over samples, and the metrics of both.

A policy loss is a function of `Terms` and settings that returns `TokenLosses`: one loss a token, and where it bounds
the ratio. Weights, masks, corrections, KL and entropy terms and metrics are the business of `policy_gradient.py`, so a
new loss is a few lines.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from strop.config.bundles import ResolvedAlgorithm
from strop.metrics import Metrics, mean
from strop.protocols import LossInputs

MAX_LOG_RATIO = 20.0
"""Ratios stay within e^-20 and e^20: beyond them a ratio has no gradient, and no loss overflows."""


class Terms:
    """What a policy loss sees of one micro-batch; N targets, no masks and no weights."""

    def __init__(self, inputs: LossInputs, base_logprobs_N: Tensor) -> None:
        """Takes the log-probs to compare with: the old policy's, or the sampler's in the two-policy form."""
        self.inputs = inputs
        self.base_logprobs_N = base_logprobs_N
        self.new_logprobs_N = inputs.new_logprobs_N
        """Of the policy that is being trained, with gradient."""
        self.advantages_N = inputs.advantages_N
        self.log_ratio_N = (self.new_logprobs_N - base_logprobs_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        """New less base log-probs, within MAX_LOG_RATIO of 0."""
        self.ratio_N = self.log_ratio_N.exp()
        """New over base probability."""

    def sample_sum(self, values_N: Tensor) -> Tensor:
        """Gives each token the sum over the tokens of its sample, [N]."""
        return sample_sums(values_N, self.inputs.sample_ids_N, self.inputs.num_samples)

    def sample_mean(self, values_N: Tensor) -> Tensor:
        """Gives each token the mean over the tokens of its sample, [N]."""
        return self.sample_sum(values_N) / self.sample_sum(torch.ones_like(values_N))

    def geometric_ratio(self, log_ratios_N: Tensor) -> Tensor:
        r"""Gives each token the geometric mean of its sample's ratios, [N], with the gradient of its own ratio.

            s_{i,t} = sg[s_i] r_{i,t} / sg[r_{i,t}],    s_i = (prod_t r_{i,t})^(1 / |o_i|)

        GSPO-token's form (Zheng et al. 2025, arXiv:2507.18071, equation 14). Summed over tokens of one weight and one
        advantage it has the gradient of s_i itself, and it stays right where tokens have advantages, corrections or
        weights of their own.
        """
        own_N = log_ratios_N - log_ratios_N.detach()
        return (self.sample_mean(log_ratios_N.detach()) + own_N).exp()


class TokenLosses(NamedTuple):
    """What a policy loss gives."""

    losses_N: Tensor
    below_N: Tensor | None = None
    """[N] bool: where the lower bound holds the token; None where a loss has none."""
    above_N: Tensor | None = None
    """[N] bool: where the upper bound does."""


PolicyLoss = Callable[[Terms, ResolvedAlgorithm], TokenLosses]


def clipped(ratio_N: Tensor, advantages_N: Tensor, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns PPO's pessimistic loss of any ratio, -min(w A, clip(w, 1 - clip_low, 1 + clip_high) A)."""
    clamped_N = ratio_N.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    losses_N = -torch.minimum(ratio_N * advantages_N, clamped_N * advantages_N)
    return TokenLosses(losses_N, *held(ratio_N, advantages_N, 1 - settings.clip_low, 1 + settings.clip_high))


def held(values_N: Tensor, advantages_N: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Says where a pessimistic bound takes the gradient away, below and above, [N] bool each."""
    return (values_N < low) & (advantages_N < 0), (values_N > high) & (advantages_N > 0)


def sample_sums(values_N: Tensor, sample_ids_N: Tensor, num_samples: int) -> Tensor:
    """Gives each target the sum over the targets of its sample, [N]; a sample lies in one micro-batch whole."""
    sums_S = values_N.new_zeros(num_samples).index_add(0, sample_ids_N, values_N)
    return sums_S[sample_ids_N]


def ratio_metrics(terms: Terms, found: TokenLosses) -> Metrics:
    """Returns how far the policy went from the one that it is compared with, and how often a bound held it."""
    with torch.no_grad():
        count = len(terms.ratio_N)
        log_ratio_N = terms.log_ratio_N
        metrics = {
            "update/ratio": mean(float(terms.ratio_N.sum()), count),
            "update/kl_to_old": mean(float((terms.ratio_N - 1 - log_ratio_N).sum()), count, "nats"),
        }
        if found.below_N is not None:
            metrics["update/clipped_low_share"] = mean(float(found.below_N.sum()), count)
        if found.above_N is not None:
            metrics["update/clipped_high_share"] = mean(float(found.above_N.sum()), count)
        return metrics
