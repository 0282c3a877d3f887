"""How far the sampler's log-probs are from the trainer's, for the same tokens and weights.

With d_t = log p_old(t) - log p_rollout(t) of a token, d_i its sum over the tokens of sample i, and means over all
tokens or all samples of an update:

    mismatch/logprob_difference            mean_t |d_t|
    mismatch/largest_logprob_difference    max_t |d_t|
    mismatch/kl                            mean_t -d_t                    KL(rollout || old), k1: unbiased, any sign
    mismatch/kl_k3                         mean_t exp(d_t) - d_t - 1      the same by k3: unbiased, never negative
    mismatch/ratio                         mean_t exp(d_t)                near 1 where the tokens are the sampler's own
    mismatch/sample_ratio                  mean_i exp(d_i)
    mismatch/chi_square                    mean_t exp(2 d_t) - 1          chi-square divergence of old from rollout
    mismatch/sample_chi_square             mean_i exp(2 d_i) - 1
    mismatch/rollout_perplexity            mean_i exp(-mean_{t in i} log p_rollout(t))
    mismatch/old_perplexity                mean_i exp(-mean_{t in i} log p_old(t))
    mismatch/log_perplexity_gap            mean_i -d_i / |o_i|            of old over rollout
    mismatch/largest_log_perplexity_gap    max_i |d_i| / |o_i|

Each is a mean or a maximum, so the values of micro-batches and ranks merge into that of the whole exactly. The share of
effective samples, (sum w)^2 / (n sum w^2) with w = exp(d) (Kish 1965), is neither, but follows from two of them:

    mismatch/effective_share               ratio^2 / (1 + chi_square)
    mismatch/effective_sample_share        sample_ratio^2 / (1 + sample_chi_square)

so `effective_shares` adds them to metrics that are merged already.

Source: verl's metrics of rollout correction, of the same quantities. Deviations: ratios within e^-20 and e^20, as in
the losses; perplexities at most e^20; verl computes its effective share of the truncated weights.
"""

import torch
from torch import Tensor

from strop.algorithms.losses.kernel import MAX_LOG_RATIO
from strop.metrics import Metrics, maximum, mean

PREFIX = "mismatch"


@torch.no_grad()
def mismatch_metrics(
    old_logprobs_N: Tensor, rollout_logprobs_N: Tensor, sample_ids_N: Tensor, num_samples: int
) -> Metrics:
    """Returns the metrics of one micro-batch that merge; without targets, means without weight and no maxima."""
    counts_S = old_logprobs_N.new_zeros(num_samples).index_add(0, sample_ids_N, torch.ones_like(old_logprobs_N))
    lengths_S = counts_S[counts_S > 0]

    def sums(values_N: Tensor) -> Tensor:
        return torch.zeros_like(counts_S).index_add(0, sample_ids_N, values_N)[counts_S > 0]

    gaps_N = old_logprobs_N - rollout_logprobs_N
    gaps_S = sums(gaps_N)
    of_tokens = {
        "logprob_difference": (gaps_N.abs(), "nats"),
        "kl": (-gaps_N, "nats"),
        "kl_k3": (_bounded(gaps_N).expm1() - gaps_N, "nats"),
        "ratio": (_bounded(gaps_N).exp(), ""),
        "chi_square": ((2 * _bounded(gaps_N)).expm1(), ""),
    }
    of_samples = {
        "sample_ratio": (_bounded(gaps_S).exp(), ""),
        "sample_chi_square": ((2 * _bounded(gaps_S)).expm1(), ""),
        "rollout_perplexity": (_bounded(-sums(rollout_logprobs_N) / lengths_S).exp(), ""),
        "old_perplexity": (_bounded(-sums(old_logprobs_N) / lengths_S).exp(), ""),
        "log_perplexity_gap": (-gaps_S / lengths_S, "nats"),
    }
    largest = {"logprob_difference": gaps_N.abs(), "log_perplexity_gap": (gaps_S / lengths_S).abs()}
    metrics: Metrics = {
        f"{PREFIX}/{name}": mean(float(values.sum()), len(values), unit)
        for name, (values, unit) in {**of_tokens, **of_samples}.items()
    }
    if len(gaps_N):
        metrics |= {
            f"{PREFIX}/largest_{name}": maximum(float(values.max()), "nats") for name, values in largest.items()
        }
    return metrics


def effective_shares(metrics: Metrics) -> Metrics:
    """Returns the shares of effective tokens and of effective samples that follow from merged metrics."""
    names = {
        "effective_share": ("ratio", "chi_square"),
        "effective_sample_share": ("sample_ratio", "sample_chi_square"),
    }
    shares: Metrics = {}
    for name, keys in names.items():
        ratio, chi_square = (_result(metrics, key) for key in keys)
        if ratio is not None and chi_square is not None:
            # A square is never above the mean square: where rounding says so, all ratios are equal.
            shares[f"{PREFIX}/{name}"] = mean(ratio**2 / max(1 + chi_square, ratio**2), 1)
    return shares


def _result(metrics: Metrics, key: str) -> float | None:
    metric = metrics.get(f"{PREFIX}/{key}")
    return None if metric is None else metric.result


def _bounded(log_ratios: Tensor) -> Tensor:
    return log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
