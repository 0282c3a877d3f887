"""Estimators that compare whole samples, against loops written from their papers."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.algorithms.advantages.best_of_n import best_of_n_advantages
from strop.algorithms.advantages.gpg import gpg, signal_scale
from strop.algorithms.advantages.group import group_advantages, group_relative
from strop.algorithms.advantages.leave_one_out import leave_one_out_advantages
from strop.algorithms.advantages.maxrl import maxrl_advantages
from strop.algorithms.advantages.opo import length_weighted_advantages, opo
from strop.algorithms.advantages.pass_at_k import pass_at_k_advantages
from support.advantages import drawn_group, resolved, sampled_advantages

REWARDS = st.lists(st.floats(-4, 4, allow_subnormal=False).map(lambda value: round(value, 3)), min_size=2, max_size=9)
SOME_INVALID = st.lists(st.one_of(st.none(), st.floats(-4, 4).map(lambda value: round(value, 3))), max_size=9)

COMPARISONS: dict[str, Callable[[list[float]], list[float]]] = {
    "none": lambda rewards: group_advantages(rewards, "none"),
    "sample": lambda rewards: group_advantages(rewards, "sample"),
    "rloo": leave_one_out_advantages,
    "opo": lambda rewards: length_weighted_advantages(rewards, [5] * len(rewards)),
    "pass_at_2": lambda rewards: pass_at_k_advantages(rewards, 2),
    "maxrl": maxrl_advantages,
}


# --------------------------------------------------------------------------------------------- properties


@pytest.mark.parametrize("name", COMPARISONS)
@given(rewards=REWARDS)
def test_advantages_of_a_group_have_mean_zero(name: str, rewards: list[float]) -> None:
    found = COMPARISONS[name](rewards)
    assert sum(found) == pytest.approx(0, abs=1e-9 * max(1.0, max(map(abs, found))))


@pytest.mark.parametrize("name", sorted(set(COMPARISONS) - {"maxrl"}))
@given(rewards=REWARDS, shift=st.integers(-8, 8))
def test_what_all_rewards_share_is_of_no_matter(name: str, rewards: list[float], shift: int) -> None:
    shifted = COMPARISONS[name]([reward + shift for reward in rewards])
    plain = COMPARISONS[name](rewards)
    if max(rewards) > min(rewards):
        assert shifted == pytest.approx(plain, rel=1e-6, abs=1e-9)


@given(rewards=REWARDS, factor=st.floats(0.1, 10))
def test_maxrl_and_pass_at_k_do_not_feel_the_scale_of_rewards(rewards: list[float], factor: float) -> None:
    for name in ("maxrl", "pass_at_2"):
        scaled = COMPARISONS[name]([factor * reward for reward in rewards])
        assert scaled == pytest.approx(COMPARISONS[name](rewards), rel=1e-6, abs=1e-9)


# --------------------------------------------------------------------------------------------- rloo


@given(SOME_INVALID)
def test_rloo_compares_with_the_mean_of_the_others(rewards: list[float | None]) -> None:
    found = leave_one_out_advantages(rewards)
    for index, reward in enumerate(rewards):
        others = [other for place, other in enumerate(rewards) if place != index and other is not None]
        if reward is None or not others or len({*others, reward}) == 1:
            assert found[index] == 0
        else:
            assert found[index] == pytest.approx(reward - math.fsum(others) / len(others), rel=1e-10, abs=1e-14)


def test_rloo_of_one_of_four_solved() -> None:
    assert leave_one_out_advantages([1, 0, 0, 0]) == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3], rel=1e-12)


# --------------------------------------------------------------------------------------------- opo


@given(SOME_INVALID, st.lists(st.integers(0, 10_000), min_size=9, max_size=9))
def test_opo_weighs_the_baseline_with_lengths(rewards: list[float | None], all_lengths: list[int]) -> None:
    lengths = all_lengths[: len(rewards)]
    valid = [(reward, length) for reward, length in zip(rewards, lengths, strict=True) if reward is not None]
    found = length_weighted_advantages(rewards, lengths)
    total = sum(length for _, length in valid)
    if total == 0 or len({reward for reward, _ in valid}) < 2:
        assert found == [0.0] * len(rewards)
        return
    baseline = math.fsum(reward * length for reward, length in valid) / total
    expected = [0.0 if reward is None else reward - baseline for reward in rewards]
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-13)


def test_opo_counts_the_tokens_that_the_policy_sampled() -> None:
    (group,) = opo([drawn_group([1.0, 0.0], ["....xxx.x.", ".x"])], resolved("opo"))
    assert sampled_advantages(group) == [pytest.approx([0.2] * 4), pytest.approx([-0.8])]


# --------------------------------------------------------------------------------------------- gpg


def test_gpg_makes_up_for_groups_that_teach_nothing() -> None:
    groups = [
        drawn_group([1.0, 0.0]),
        drawn_group([0.0, 0.0, 0.0]),
        drawn_group([1.0, 1.0, None]),
        drawn_group([1.0, 0.0, 0.0]),
    ]
    plain = group_relative(groups, resolved("dr_grpo"))
    for scaled, unscaled in zip(gpg(groups, resolved("gpg")), plain, strict=True):
        for found, expected in zip(sampled_advantages(scaled), sampled_advantages(unscaled), strict=True):
            assert found == pytest.approx([10 / 5 * value for value in expected], rel=1e-6)


def test_gpg_divides_by_the_deviation_where_asked() -> None:
    (group,) = gpg([drawn_group([1.0, 0.0, 0.0, 0.0])], resolved("gpg", advantage_std="sample"))
    assert sampled_advantages(group)[0] == pytest.approx([1.5, 1.5], rel=1e-5)


def test_gpg_leaves_a_batch_without_signal_unscaled() -> None:
    assert signal_scale([[1.0, 1.0], [None, 0.0], []]) == 1.0
    assert signal_scale([]) == 1.0


# --------------------------------------------------------------------------------------------- pass@k


def subsets_oracle(rewards: list[float], k: int) -> list[float]:
    """Enumerates all subsets of k samples; the reward of a subset is its best's."""
    subsets = list(itertools.combinations(range(len(rewards)), k))
    best = [max(rewards[place] for place in subset) for subset in subsets]
    mean = math.fsum(best) / len(best)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in best) / len(best))
    advantages = []
    for index in range(len(rewards)):
        own = [(value - mean) / deviation for value, subset in zip(best, subsets, strict=True) if index in subset]
        advantages.append(math.fsum(own) / len(own))
    return advantages


@given(REWARDS, st.integers(1, 9))
def test_pass_at_k_agrees_with_all_subsets(rewards: list[float], k: int) -> None:
    found = pass_at_k_advantages(rewards, k)
    if len(rewards) <= k or len(set(sorted(rewards)[k - 1 :])) == 1:
        assert found == [0.0] * len(rewards)
        return
    assert found == pytest.approx(subsets_oracle(rewards, k), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("num_samples", "num_wrong", "k"), [(8, 7, 4), (8, 5, 2), (32, 31, 8), (32, 20, 4)])
def test_pass_at_k_agrees_with_the_analytic_form_of_the_paper(num_samples: int, num_wrong: int, k: int) -> None:
    mean = 1 - math.comb(num_wrong, k) / math.comb(num_samples, k)
    deviation = math.sqrt(mean * (1 - mean))
    right = (1 - mean) / deviation
    wrong = (1 - mean - math.comb(num_wrong - 1, k - 1) / math.comb(num_samples - 1, k - 1)) / deviation
    rewards = [1.0] * (num_samples - num_wrong) + [0.0] * num_wrong
    expected = [right] * (num_samples - num_wrong) + [wrong] * num_wrong
    assert pass_at_k_advantages(rewards, k) == pytest.approx(expected, rel=1e-10)


def test_pass_at_1_is_the_group_advantage_with_n() -> None:
    assert pass_at_k_advantages([1, 0, 0, 0], 1) == pytest.approx([math.sqrt(3), *[-math.sqrt(3) / 3] * 3], rel=1e-12)


def test_equal_rewards_have_equal_pass_at_k_advantages_and_invalid_ones_none() -> None:
    found = pass_at_k_advantages([0.3, None, 0.7, 0.3, 0.7, 0.3, 0.1], 3)
    assert found[1] == 0
    assert len({found[0], found[3], found[5]}) == len({found[2], found[4]}) == 1


def test_pass_at_k_of_a_group_that_any_subset_solves_is_zero() -> None:
    assert pass_at_k_advantages([1, 1, 1, 0], 2) == [0.0] * 4
    assert pass_at_k_advantages([1, 0, 0, 0], 4) == [0.0] * 4


def test_pass_at_k_of_a_thousand_samples_is_finite() -> None:
    found = pass_at_k_advantages([float(number % 7) for number in range(1024)], 64)
    assert np.isfinite(found).all()
    assert sum(found) == pytest.approx(0, abs=1e-8)


# --------------------------------------------------------------------------------------------- maxrl


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_maxrl_weighs_successes_with_their_number(solved: list[bool]) -> None:
    num_samples, num_solved = len(solved), sum(solved)
    found = maxrl_advantages([float(value) for value in solved])
    if num_solved in (0, num_samples):
        assert found == [0.0] * num_samples
        return
    expected = [num_samples * value / num_solved - 1 for value in solved]
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_samples", [2, 3, 5])
@pytest.mark.parametrize("pass_rate", [0.1, 0.5, 0.8])
def test_maxrl_is_in_expectation_the_gradient_of_log_pass_rate_cut_after_n_minus_1_terms(
    num_samples: int, pass_rate: float
) -> None:
    """By enumeration, with a policy of one logit: grad log p is 1 - p where it solves, -p where it does not."""
    expected = 0.0
    for solved in itertools.product([0, 1], repeat=num_samples):
        probability = math.prod(pass_rate if one else 1 - pass_rate for one in solved)
        advantages = maxrl_advantages([float(one) for one in solved])
        scores = [one - pass_rate for one in solved]
        expected += probability * sum(a * s for a, s in zip(advantages, scores, strict=True)) / num_samples
    slope = pass_rate * (1 - pass_rate)
    cut = sum((1 - pass_rate) ** (k - 1) for k in range(1, num_samples)) * slope
    assert expected == pytest.approx(cut, rel=1e-10)


@given(SOME_INVALID)
def test_maxrl_is_bounded_by_the_group_whatever_the_rewards(rewards: list[float | None]) -> None:
    found = maxrl_advantages(rewards)
    assert max(map(abs, found), default=0) <= len(rewards) + 1
    assert all(value == 0 for value, reward in zip(found, rewards, strict=True) if reward is None)


# --------------------------------------------------------------------------------------------- best of n


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.2, 0.9, 0.9, None], [0, 1, 0, 0]),
        ([None, 0.0, 1.0], [0, 0, 1]),
        ([1.0, 1.0], [0, 0]),
        ([-1.0, -0.5], [0, 0]),
        ([0.0, -0.5], [0, 0]),
        ([1.0], [0]),
        ([], []),
    ],
)
def test_the_first_best_sample_of_a_group_with_signal_is_learnt(
    rewards: list[float | None], expected: list[float]
) -> None:
    assert best_of_n_advantages(rewards) == expected
