"""Estimators of KL(policy || reference) from the log-probs of sampled tokens.

With r = log p_reference - log p_policy (Schulman, "Approximating KL divergence", 2020):
k1 = -r is unbiased and may be negative; k2 = r^2 / 2 is biased and of low variance; k3 = exp(r) - r - 1 is
unbiased and never negative. As a loss term with the sampled tokens held fixed, the gradient of k1 has
expectation 0, that of k2 is the gradient of the KL, that of k3 is the gradient of the reversed KL.
"""

from typing import Literal

import torch

KlEstimator = Literal["k1", "k2", "k3"]


def kl_estimate(
    logprobs_N: torch.Tensor,
    reference_logprobs_N: torch.Tensor,
    estimator: KlEstimator,
) -> torch.Tensor:
    """Returns the estimate of each token, [N], differentiable in `logprobs_N`."""
    r_N = reference_logprobs_N - logprobs_N
    match estimator:
        case "k1":
            return -r_N
        case "k2":
            return 0.5 * r_N.square()
        case "k3":
            return torch.exp(r_N) - r_N - 1
