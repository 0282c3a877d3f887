"""The clipped policy-gradient loss of PPO with separate bounds below and above."""

from dataclasses import dataclass

import torch

from strop.metrics import Metrics, mean


@dataclass(frozen=True, slots=True)
class ClipBounds:
    """The ratio new / old is clipped to [1 - low, 1 + high]."""

    low: float
    high: float


def clipped_loss(
    new_logprobs_N: torch.Tensor, old_logprobs_N: torch.Tensor, advantages_N: torch.Tensor, bounds: ClipBounds
) -> tuple[torch.Tensor, Metrics]:
    """Returns -min(ratio * A, clip(ratio) * A) of each token, [N], and how often the clip binds.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7; separate bounds: DAPO, arXiv:2503.14476.
    """
    ratio_N = torch.exp(new_logprobs_N - old_logprobs_N)
    clipped_N = ratio_N.clamp(1 - bounds.low, 1 + bounds.high)
    losses_N = -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)
    count = len(ratio_N)
    with torch.no_grad():
        below = ((ratio_N < 1 - bounds.low) & (advantages_N < 0)).sum()
        above = ((ratio_N > 1 + bounds.high) & (advantages_N > 0)).sum()
        metrics = {
            "update/ratio": mean(float(ratio_N.sum()), count),
            "update/clipped_low_share": mean(float(below), count),
            "update/clipped_high_share": mean(float(above), count),
        }
    return losses_N, metrics
