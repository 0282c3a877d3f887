"""What every policy loss shares: ratios, means over samples, and the metrics of a clip.

A policy loss is a function of `Terms` and settings that returns `TokenLosses`: one loss a token, and where it bounds
the ratio. Weights, masks, corrections, KL and entropy terms and metrics are the business of `policy_gradient.py`, so a
new loss is a few lines.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from strop.config.bundles import ResolvedAlgorithm
from strop.metrics import Metrics, mean
from strop.protocols import LossInputs

MAX_LOG_RATIO = 20.0
"""Ratios stay within e^-20 and e^20: beyond them a token has no gradient, and no loss overflows."""


@dataclass(frozen=True)
class Terms:
    """What a policy loss sees of one micro-batch; N targets, no masks and no weights."""

    inputs: LossInputs
    base_logprobs_N: Tensor
    """What the new log-probs are compared with: the old policy's, or the sampler's in the two-policy form."""

    @property
    def new_logprobs_N(self) -> Tensor:
        """Of the policy that is being trained, with gradient."""
        return self.inputs.new_logprobs_N

    @property
    def advantages_N(self) -> Tensor:
        """Of each token."""
        return self.inputs.advantages_N

    @cached_property
    def log_ratio_N(self) -> Tensor:
        """New less base log-probs, within MAX_LOG_RATIO of 0."""
        return (self.new_logprobs_N - self.base_logprobs_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)

    @cached_property
    def ratio_N(self) -> Tensor:
        """New over base probability."""
        return self.log_ratio_N.exp()

    def sample_sum(self, values_N: Tensor) -> Tensor:
        """Gives each token the sum over the tokens of its sample, [N]."""
        return sample_sums(values_N, self.inputs.sample_ids_N, self.inputs.num_samples)

    def sample_mean(self, values_N: Tensor) -> Tensor:
        """Gives each token the mean over the tokens of its sample, [N]."""
        return self.sample_sum(values_N) / self.sample_sum(torch.ones_like(values_N))


class TokenLosses(NamedTuple):
    """What a policy loss gives."""

    losses_N: Tensor
    below_N: Tensor | None = None
    """[N] bool: where the lower bound takes the gradient away; None where a loss has none."""
    above_N: Tensor | None = None
    """[N] bool: where the upper bound does."""


PolicyLoss = Callable[[Terms, ResolvedAlgorithm], TokenLosses]


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
