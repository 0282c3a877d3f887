"""The proof's arithmetic, with numbers worked out by hand."""

import math

import numpy as np
import pytest

from strop.weight_sync import Pair, Verdict, judge, noise_floor, tracked_share


def pair(sampler: list[float], trainer: list[float]) -> Pair:
    return Pair(np.array(sampler), np.array(trainer))


BEFORE = pair([-1.0, -2.0], [-1.0, -2.0])


def test_a_fresh_sampler_tracks_all_and_a_stale_one_nothing() -> None:
    assert tracked_share(pair([-1.3, -1.6], [-1.3, -1.6]), BEFORE) == pytest.approx(1)
    assert tracked_share(pair([-1.0, -2.0], [-1.3, -1.6]), BEFORE) == 0


def test_the_share_is_the_projection_on_the_trainer_s_movement() -> None:
    # The trainer moved by (-0.3, 0.4), the sampler by (-0.3, 0): <.,.> = 0.09, |.|^2 = 0.25.
    assert tracked_share(pair([-1.3, -2.0], [-1.3, -1.6]), BEFORE) == pytest.approx(0.36)
    # Against the trainer's direction the share is negative.
    assert tracked_share(pair([-0.7, -2.4], [-1.3, -1.6]), BEFORE) == pytest.approx(-1)


def test_the_noise_floor_is_eight_times_the_noise_of_a_difference_of_two_readings() -> None:
    assert noise_floor(1e-6, 50) == pytest.approx(8 * math.sqrt(100) * 1e-6)


def test_a_fresh_sampler_is_proven() -> None:
    judgement = judge(pair([-1.3, -1.6], [-1.3, -1.6]), BEFORE, noise=1e-6, bound=1e-4)
    assert judgement.verdict is Verdict.PROVEN
    assert judgement.largest_difference == 0
    assert judgement.tracked_share == pytest.approx(1)


def test_a_difference_above_the_bound_fails_and_names_both_numbers() -> None:
    judgement = judge(pair([-1.3, -1.5998], [-1.3, -1.6]), BEFORE, noise=1e-6, bound=1e-4)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.largest_difference == pytest.approx(2e-4)
    assert judgement.reason == "log-probs differ by up to 0.0002, allowed is 0.0001"


def test_a_stale_sampler_at_a_tiny_learning_rate_passes_the_bound_and_fails_the_share() -> None:
    now = pair([-1.0, -2.0], [-1.00003, -1.99996])
    assert now.largest_difference < 1e-4
    judgement = judge(now, BEFORE, noise=1e-6, bound=1e-4)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.tracked_share == 0
    assert "0.00 of the trainer's movement" in judgement.reason


@pytest.mark.parametrize("share", [0.5, 1.5])
def test_half_or_one_and_a_half_of_the_movement_is_not_fresh(share: float) -> None:
    now = pair([-1.0 + share * 3e-5, -2.0 + share * 4e-5], [-1.0 + 3e-5, -2.0 + 4e-5])
    assert judge(now, BEFORE, noise=1e-6, bound=1e-4).verdict is Verdict.FAILED


def test_below_the_noise_floor_nothing_is_ever_called_proven() -> None:
    now = pair([-1.0, -2.0], [-1.000003, -1.999996])
    judgement = judge(now, BEFORE, noise=1e-6, bound=1e-4)
    assert judgement.verdict is Verdict.INDISTINGUISHABLE
    assert judgement.tracked_share is None


@pytest.mark.parametrize("before", [None, BEFORE])
def test_without_movement_nothing_is_proven(before: Pair | None) -> None:
    assert judge(BEFORE, before, noise=0.0, bound=1e-4).verdict is Verdict.INDISTINGUISHABLE


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["sampler", "trainer"])
def test_a_number_that_is_not_finite_fails(bad: float, side: str) -> None:
    values = {"sampler": [-1.0, -2.0], "trainer": [-1.0, -2.0], side: [-1.0, bad]}
    judgement = judge(pair(**values), BEFORE, noise=1e-6, bound=1e-4)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.largest_difference == math.inf


def test_rounding_noise_at_the_floor_does_not_fail_a_fresh_sampler() -> None:
    random = np.random.default_rng(0)
    for _ in range(1000):
        noise, count = 1e-5, 5
        start, moved = random.normal(-2, 1, count), random.normal(0, 1, count)
        moved *= noise_floor(noise, count) / np.linalg.norm(moved)
        before = Pair(start + random.normal(0, noise, count), start)
        now = Pair(start + moved + random.normal(0, noise, count), start + moved)
        assert judge(now, before, noise=noise * 1.0, bound=1e-3).verdict is not Verdict.FAILED


def test_both_sides_must_score_the_same_tokens() -> None:
    with pytest.raises(ValueError, match="must score the same tokens"):
        pair([-1.0], [-1.0, -2.0])
