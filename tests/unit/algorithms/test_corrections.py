"""Corrections of the mismatch between sampler and trainer against loops over samples and tokens in float64."""

import math

import pytest
import torch
from torch import Tensor

from strop.algorithms.corrections import correction_weights, is_active, normalised
from strop.config.algorithm import CorrectionConfig

LENGTHS = (1, 4, 7, 2)
"""Tokens of each sample; a sample's tokens need not lie behind one another."""


def made(seed: int = 0, scale: float = 0.3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sample_ids = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    sample_ids = sample_ids[torch.randperm(len(sample_ids), generator=generator)]
    rollout = -torch.rand(len(sample_ids), generator=generator, dtype=torch.float64) * 3
    old = rollout + scale * torch.randn(len(sample_ids), generator=generator, dtype=torch.float64)
    return old.to(dtype), rollout.to(dtype), sample_ids


def oracle(old: Tensor, rollout: Tensor, sample_ids: Tensor, settings: CorrectionConfig) -> list[float]:
    weights = []
    for n, sample in enumerate(sample_ids.tolist()):
        own = [k for k, other in enumerate(sample_ids.tolist()) if other == sample]
        token = math.exp(float(old[n]) - float(rollout[n]))
        sequence = math.prod(math.exp(float(old[k]) - float(rollout[k])) for k in own)
        geometric = sequence ** (1 / len(own))
        weight = {"none": 1.0, "token": token, "sequence": sequence}[settings.weight]
        if settings.weight != "none":
            weight = min(weight, settings.weight_cap)
        bands = (
            (token, settings.token_band),
            (geometric, settings.geometric_band),
            (sequence, settings.sequence_band),
        )
        for ratio, band in bands:
            if band is not None and not band[0] <= ratio <= band[1]:
                weight = 0.0
        weights.append(weight)
    return weights


SETTINGS = [
    CorrectionConfig(weight="token", weight_cap=1.2),
    CorrectionConfig(weight="sequence", weight_cap=1.1),
    CorrectionConfig(weight="sequence", weight_cap=50),
    CorrectionConfig(token_band=(0.8, 1.3)),
    CorrectionConfig(geometric_band=(0.95, 1.1)),
    CorrectionConfig(sequence_band=(0.7, 1.5)),
    CorrectionConfig(weight="token", weight_cap=5, token_band=(0.5, 5)),
    CorrectionConfig(weight="token", token_band=(0.7, 2), geometric_band=(0.9, 1.2), sequence_band=(0.1, 10)),
    CorrectionConfig(weight="sequence", geometric_band=(0.9, 1.2)),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("seed", range(5))
def test_the_weights_equal_the_loop(
    settings: CorrectionConfig, dtype: torch.dtype, tolerance: float, seed: int
) -> None:
    old, rollout, sample_ids = made(seed, dtype=dtype)
    found = correction_weights(old, rollout, sample_ids, len(LENGTHS), settings)
    assert found.dtype == dtype
    assert found.tolist() == pytest.approx(oracle(old, rollout, sample_ids, settings), rel=tolerance)


def test_the_settings_of_the_test_weight_reject_and_keep() -> None:
    for settings in SETTINGS:
        found = [weight for seed in range(5) for weight in oracle(*made(seed), settings)]
        has_band = any((settings.token_band, settings.geometric_band, settings.sequence_band))
        assert (0.0 in found) == has_band
        assert any(found)


def test_equal_log_probs_weigh_one_and_are_never_rejected() -> None:
    _, rollout, sample_ids = made()
    for settings in SETTINGS:
        assert (correction_weights(rollout, rollout, sample_ids, len(LENGTHS), settings) == 1).all()


def test_the_factors_bear_no_gradient() -> None:
    old, rollout, sample_ids = made()
    found = correction_weights(old.requires_grad_(), rollout, sample_ids, len(LENGTHS), SETTINGS[0])
    assert not found.requires_grad


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gap", [1000.0, -1000.0])
def test_a_thousand_nats_are_cut_or_rejected_without_overflow(
    settings: CorrectionConfig, dtype: torch.dtype, gap: float
) -> None:
    rollout, sample_ids = torch.zeros(5, dtype=dtype), torch.tensor([0, 0, 1, 1, 1])
    old = rollout + torch.tensor([gap, 0, 0, 0, 0], dtype=dtype)
    found = correction_weights(old, rollout, sample_ids, 2, settings)
    assert found.isfinite().all()
    assert found[2:].tolist() == [1, 1, 1], "the other sample is as it was"
    has_band = any((settings.token_band, settings.geometric_band, settings.sequence_band))
    assert float(found[0]) == pytest.approx(0 if has_band or gap < 0 else settings.weight_cap)


def test_a_band_above_every_bound_of_ratios_still_rejects_what_is_outside() -> None:
    log_ratio = torch.tensor([25.0, 30.0], dtype=torch.float64)
    settings = CorrectionConfig(token_band=(0.0, math.exp(26.0)))
    found = correction_weights(log_ratio, torch.zeros(2, dtype=torch.float64), torch.tensor([0, 1]), 2, settings)
    assert found.tolist() == [1, 0]


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_no_targets_give_no_weights(settings: CorrectionConfig) -> None:
    found = correction_weights(torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.int64), 3, settings)
    assert found.shape == (0,)


def test_lengths_of_one_and_ten_thousand_lie_in_one_batch() -> None:
    sample_ids = torch.tensor([0] + [1] * 10_000)
    rollout = torch.zeros(10_001, dtype=torch.float64)
    old = rollout + 1e-3
    found = correction_weights(old, rollout, sample_ids, 2, CorrectionConfig(geometric_band=(0.99, 1.01)))
    assert (found == 1).all(), "the geometric mean does not grow with the length"
    found = correction_weights(old, rollout, sample_ids, 2, CorrectionConfig(sequence_band=(0.99, 1.01)))
    assert found[0] == 1
    assert (found[1:] == 0).all(), "the product does"
    found = correction_weights(old, rollout, sample_ids, 2, CorrectionConfig(weight="sequence", weight_cap=1e6))
    assert found[[0, 1]].tolist() == pytest.approx([math.exp(1e-3), math.exp(10)], rel=1e-10)


def test_normalised_weights_have_the_mean_one_however_the_mini_batch_is_cut() -> None:
    weights = torch.tensor([0.5, 0.0, 2.0, 1.0, 1.5, 0.25], dtype=torch.float64)
    for cuts in ([6], [1, 5], [2, 0, 4], [1] * 6):
        found = torch.cat(normalised(weights.split(cuts)))
        assert found.tolist() == pytest.approx((weights / (5.25 / 6)).tolist(), rel=1e-12)
        assert float(found.mean()) == pytest.approx(1.0, rel=1e-12)


def test_normalising_nothing_or_only_rejected_tokens_leaves_them() -> None:
    assert normalised([]) == []
    assert normalised([torch.zeros(0)])[0].shape == (0,)
    assert normalised([torch.zeros(3)])[0].tolist() == [0, 0, 0]


def test_only_weights_and_bands_are_active() -> None:
    assert not is_active(CorrectionConfig())
    assert not is_active(CorrectionConfig(policies=2, normalise=True, weight_cap=3.0))
    assert all(is_active(settings) for settings in SETTINGS)
