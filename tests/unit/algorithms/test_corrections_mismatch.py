"""Metrics of the mismatch against loops in float64, and over micro-batches against the whole."""

import math
from statistics import fmean

import pytest
import torch
from torch import Tensor

from strop.algorithms.mismatch import effective_shares, mismatch_metrics
from strop.metrics import Metrics, merge

LENGTHS = (3, 1, 6, 2)


def made(seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sample_ids = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    rollout = -torch.rand(len(sample_ids), generator=generator, dtype=torch.float64) * 3
    old = rollout + 0.3 * torch.randn(len(sample_ids), generator=generator, dtype=torch.float64)
    return old.to(dtype), rollout.to(dtype), sample_ids


def whole(old: Tensor, rollout: Tensor, sample_ids: Tensor, num_samples: int = len(LENGTHS)) -> Metrics:
    metrics = mismatch_metrics(old, rollout, sample_ids, num_samples)
    return metrics | effective_shares(metrics)


def results(metrics: Metrics) -> dict[str, float | None]:
    return {name.removeprefix("mismatch/"): metric.result for name, metric in metrics.items()}


def oracle(old: Tensor, rollout: Tensor, sample_ids: Tensor) -> dict[str, float]:
    pairs = list(zip(old.tolist(), rollout.tolist(), sample_ids.tolist(), strict=True))
    gaps = [o - r for o, r, _ in pairs]
    samples = [[(o, r) for o, r, i in pairs if i == sample] for sample in sorted({i for *_, i in pairs})]
    products = [math.prod(math.exp(o - r) for o, r in sample) for sample in samples]
    log_gaps = [fmean(r - o for o, r in sample) for sample in samples]
    weights = [math.exp(gap) for gap in gaps]
    return {
        "logprob_difference": fmean(map(abs, gaps)),
        "largest_logprob_difference": max(map(abs, gaps)),
        "kl": fmean(-gap for gap in gaps),
        "kl_k3": fmean(math.exp(gap) - gap - 1 for gap in gaps),
        "ratio": fmean(weights),
        "sample_ratio": fmean(products),
        "chi_square": fmean(w * w for w in weights) - 1,
        "sample_chi_square": fmean(w * w for w in products) - 1,
        "rollout_perplexity": fmean(math.exp(-fmean(r for _, r in sample)) for sample in samples),
        "old_perplexity": fmean(math.exp(-fmean(o for o, _ in sample)) for sample in samples),
        "log_perplexity_gap": fmean(log_gaps),
        "largest_log_perplexity_gap": max(map(abs, log_gaps)),
        "effective_share": sum(weights) ** 2 / (len(weights) * sum(w * w for w in weights)),
        "effective_sample_share": sum(products) ** 2 / (len(products) * sum(w * w for w in products)),
    }


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("seed", range(3))
def test_the_metrics_equal_the_loop(dtype: torch.dtype, tolerance: float, seed: int) -> None:
    old, rollout, sample_ids = made(seed, dtype)
    expected = oracle(old, rollout, sample_ids)
    assert results(whole(old, rollout, sample_ids)) == pytest.approx(expected, rel=tolerance, abs=tolerance / 10)


@pytest.mark.parametrize("parts", [[[0], [1], [2], [3]], [[3, 0], [2, 1]], [[0, 1, 2], [3]], [[1, 3], [], [0, 2]]])
def test_micro_batches_merge_into_the_metrics_of_the_whole(parts: list[list[int]]) -> None:
    old, rollout, sample_ids = made()
    found = []
    for samples in parts:
        chosen = torch.isin(sample_ids, torch.tensor(samples))
        own_ids = torch.tensor([samples.index(i) for i in sample_ids[chosen].tolist()], dtype=torch.int64)
        found.append(mismatch_metrics(old[chosen], rollout[chosen], own_ids, len(samples)))
    merged = merge(found)
    assert results(merged | effective_shares(merged)) == pytest.approx(
        results(whole(old, rollout, sample_ids)), rel=1e-12
    )


def test_equal_log_probs_have_no_distance_and_every_token_is_effective() -> None:
    _, rollout, sample_ids = made()
    found = results(whole(rollout, rollout, sample_ids))
    ones = {"ratio", "sample_ratio", "effective_share", "effective_sample_share"}
    perplexities = {"rollout_perplexity", "old_perplexity"}
    assert {name for name, value in found.items() if value == 1} == ones
    assert {name for name, value in found.items() if value == 0} == set(found) - ones - perplexities
    assert found["rollout_perplexity"] == found["old_perplexity"]


def test_the_tokens_of_the_sampler_give_the_kl_and_the_chi_square_of_the_distributions() -> None:
    """By enumeration: each token of a vocabulary as often as a sampler of these probabilities would draw it."""
    rollout = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
    old = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    drawn = torch.repeat_interleave(torch.arange(4), (rollout * 8).long())
    found = results(whole(old.log()[drawn], rollout.log()[drawn], torch.arange(8), 8))
    pairs = list(zip(rollout.tolist(), old.tolist(), strict=True))
    kl = sum(p * math.log(p / q) for p, q in pairs)
    chi_square = sum(q * q / p for p, q in pairs) - 1
    assert found["kl"] == pytest.approx(kl, rel=1e-10)
    assert found["kl_k3"] == pytest.approx(kl, rel=1e-10)
    assert found["ratio"] == pytest.approx(1.0, rel=1e-10)
    assert found["chi_square"] == found["sample_chi_square"] == pytest.approx(chi_square, rel=1e-10)
    assert found["effective_share"] == pytest.approx(1 / (1 + chi_square), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gap", [1000.0, -1000.0])
def test_a_thousand_nats_give_finite_metrics(gap: float, dtype: torch.dtype) -> None:
    rollout = torch.full((3,), -1.0, dtype=dtype)
    for gaps in ([gap, 0, 0], [gap, gap, gap]):
        found = results(whole(rollout + torch.tensor(gaps, dtype=dtype), rollout, torch.tensor([0, 0, 1]), 2))
        assert all(value is not None and math.isfinite(value) for value in found.values())
        assert found["largest_logprob_difference"] == 1000
        assert 0 < found["effective_share"] <= 1
        assert 0 < found["effective_sample_share"] <= 1


def test_no_targets_give_nothing_measured() -> None:
    empty = torch.zeros(0)
    found = results(whole(empty, empty, torch.zeros(0, dtype=torch.int64), 2))
    assert set(found.values()) == {None}
    assert "largest_logprob_difference" not in found
    assert "effective_share" not in found


def test_one_token_is_its_own_sample() -> None:
    found = results(whole(torch.tensor([-1.0]), torch.tensor([-1.5]), torch.tensor([1]), 2))
    assert found["ratio"] == found["sample_ratio"] == pytest.approx(math.exp(0.5), rel=1e-6)
    assert found["old_perplexity"] == pytest.approx(math.e, rel=1e-6)
    assert found["effective_share"] == pytest.approx(1.0, rel=1e-6)


def test_lengths_of_one_and_ten_thousand_lie_in_one_batch() -> None:
    sample_ids = torch.tensor([0] + [1] * 10_000)
    rollout = torch.full((10_001,), -2.0, dtype=torch.float64)
    found = results(whole(rollout + 1e-3, rollout, sample_ids, 2))
    assert found["sample_ratio"] == pytest.approx((math.exp(1e-3) + math.exp(10)) / 2, rel=1e-9)
    assert found["log_perplexity_gap"] == pytest.approx(-1e-3, rel=1e-9)


def test_no_gradient_is_kept() -> None:
    old, rollout, sample_ids = made()
    metrics = mismatch_metrics(old.requires_grad_(), rollout, sample_ids, len(LENGTHS))
    assert all(isinstance(metric.value, float) for metric in metrics.values())
