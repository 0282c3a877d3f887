"""KL(policy || reference): estimators from the log-probs of sampled tokens, and over the reference's likeliest tokens.

With r = log p_reference - log p_policy of a token that the policy sampled (Schulman, "Approximating KL divergence",
2020, http://joschu.net/blog/kl-approx.html):

    k1 = -r                 k2 = r^2 / 2            k3 = exp(r) - r - 1            abs = |r|
    k1+, k3+, abs+          the value of k1, k3, abs and the gradient of k2

Which to take depends on what it is for. Expected over the tokens that the policy samples,
with KL for KL(policy || reference) and RKL for the reversed KL(reference || policy):

                its value is       its gradient as a loss term is    what it costs in the reward has the gradient of
    k1          the KL             0                                 the KL
    k2          biased             that of the KL                    something else
    k3          the KL             that of the RKL                   the KL less the RKL
    abs         biased             something else                    something else
    k1+, k3+    the KL             that of the KL                    as without +: a reward is a number
    abs+        biased             that of the KL                    as without +
    full        a lower bound      that of its value                 nothing: it is not of sampled tokens

So as a loss term k2, k1+ and k3+ lower the KL itself (they differ in what is reported), k1 does nothing, and k3, the
common choice, lowers the RKL, whose gradient is the same to first order near the reference. In the reward only k1 is
right. A loss term takes the states as they come; a reward also counts that a token leads to states of a greater KL, and
so has the gradient of the KL of whole samples. All of it holds where the tokens are the current policy's own; after the
first update of a batch they are not, and no term here is weighted for that.

Sources: Tang and Munos 2025, "On a few pitfalls in KL divergence gradient estimation for RL", arXiv:2506.09477; Liu et
al. 2025, "Rethinking KL Regularization in RLHF", arXiv:2510.01555; Shah et al. 2025, "A Comedy of Estimators",
arXiv:2512.21852. Every entry above is a test by enumeration in `tests/unit/algorithms/test_kl.py`.

Deviations: k3 takes r as at most 20 and has no gradient beyond; TRL does not bound it, verl also bounds its value.
"""

import math

import torch
from torch import Tensor

from strop.algorithms.losses.kernel import MAX_LOG_RATIO
from strop.config.algorithm import KlEstimator

MAX_RELATIVE_ERROR = 0.2
"""How much of the distance to the target one step reacts to, in units of the target."""


def kl_estimate(logprobs_N: Tensor, reference_logprobs_N: Tensor, estimator: KlEstimator) -> Tensor:
    """Returns the estimate of each token, [N] in nats, differentiable in `logprobs_N`.

    Raises ValueError for `full`, which is not of sampled tokens.
    """
    r_N = reference_logprobs_N - logprobs_N
    match estimator:
        case "k1":
            return -r_N
        case "k2":
            return 0.5 * r_N.square()
        case "k3":
            bounded_N = r_N.clamp(max=MAX_LOG_RATIO)
            return torch.expm1(bounded_N) - bounded_N
        case "abs":
            return r_N.abs()
        case "k1+":
            return _straight_through(-r_N, r_N)
        case "k3+":
            return _straight_through(kl_estimate(logprobs_N, reference_logprobs_N, "k3"), r_N)
        case "abs+":
            return _straight_through(r_N.abs(), r_N)
        case "full":
            raise ValueError("estimator must be one of sampled tokens here, got full: use full_kl")


def _straight_through(values_N: Tensor, r_N: Tensor) -> Tensor:
    """Those values, exactly, with the gradient of k2."""
    k2_N = 0.5 * r_N.square()
    return values_N.detach() + (k2_N - k2_N.detach())


def full_kl(policy_logprobs_NK: Tensor, reference_logprobs_NK: Tensor) -> Tensor:
    """Returns KL(policy || reference) over K tokens and one bucket of all others, [N] in nats.

    It is a lower bound of the KL over the vocabulary, since merging tokens loses their differences, and equal to it
    where K is the whole vocabulary. Differentiable in the policy's log-probs.

        sum_k p_k (log p_k - log q_k) + P (log P - log Q),    P = 1 - sum_k p_k,  Q = 1 - sum_k q_k

    Args:
        policy_logprobs_NK: of the reference's K likeliest tokens, normalised over the whole vocabulary.
        reference_logprobs_NK: of the same tokens, of the reference.
    """
    top_N = (policy_logprobs_NK.exp() * (policy_logprobs_NK - reference_logprobs_NK)).sum(-1)
    log_tail_N, log_reference_tail_N = log_tail(policy_logprobs_NK), log_tail(reference_logprobs_NK)
    return top_N + log_tail_N.exp() * (log_tail_N - log_reference_tail_N)


def log_tail(logprobs_NK: Tensor, least: float | None = None) -> Tensor:
    """Returns log(1 - sum_k p_k), [N]; what is left is at least `least`, one rounding unit where that is None."""
    floor = torch.finfo(logprobs_NK.dtype).eps if least is None else least
    log_sum_N = logprobs_NK.logsumexp(-1).clamp(max=math.log1p(-floor))
    # Each form loses its digits where the other is used; `where` must not see an infinity in the one not taken.
    is_large_N = log_sum_N > -math.log(2)
    large_N = torch.expm1(torch.where(is_large_N, log_sum_N, -math.log(2))).neg().log()
    small_N = torch.log1p(-torch.where(is_large_N, -math.log(2), log_sum_N).exp())
    return torch.where(is_large_N, large_N, small_N)


def adapted_coefficient(coefficient: float, kl: float, target: float, num_samples: int, horizon: int) -> float:
    """Returns the KL coefficient after a step, moved towards where the KL stays near its target.

        e = clip(kl / target - 1, -0.2, 0.2),    coefficient <- coefficient (1 + e num_samples / horizon)

    Over `horizon` samples the coefficient changes by a factor of at most exp(0.2) = 1.22. A KL that is not a number
    leaves it.

    Source: Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", arXiv:1909.08593, section 2.2,
    with the gain of the authors' code (num_samples / horizon, horizon 10,000) in the place of the paper's 0.1.
    Deviations: `kl` and `target` are a token's, not a whole sample's; a step of more samples than the horizon counts
    as one horizon, so that the coefficient stays positive.
    """
    if math.isnan(kl):
        return coefficient
    error = min(MAX_RELATIVE_ERROR, max(-MAX_RELATIVE_ERROR, kl / target - 1))
    return coefficient * (1 + error * min(1.0, num_samples / horizon))
