"""Which samples are kept, against a search over all subsets."""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.algorithms.selection import most_different, select_samples
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.records import FinishState, Group, Sample
from support.groups import made_prompt, made_row

STOPPED, CUT, ABORTED, FAILED = FinishState


def settings(keep_samples: int | None, **overrides: object) -> ResolvedAlgorithm:
    return resolve_algorithm(AlgorithmConfig(keep_samples=keep_samples, **overrides), 10)


def made(rewards: Sequence[float | None]) -> Group:
    row = made_row(([1, 2], False), ([3, 4], True))
    return Group(made_prompt(), tuple(Sample(index, (row,), STOPPED, one) for index, one in enumerate(rewards)))


def kept(group: Group, chosen: ResolvedAlgorithm) -> list[int]:
    return [sample.index for sample in select_samples(group, chosen).samples]


def variance(rewards: Sequence[float]) -> Fraction:
    exact = [Fraction(reward) for reward in rewards]
    mean = sum(exact) / len(exact)
    return sum((reward - mean) ** 2 for reward in exact) / len(exact)


REWARDS = st.lists(st.one_of(st.sampled_from([0.0, 1.0, 0.1, 0.7, -2.0]), st.floats(-10, 10)), min_size=2, max_size=9)


@given(REWARDS, st.data())
def test_no_subset_of_that_size_has_a_greater_variance(rewards: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(2, len(rewards)))
    found = most_different(rewards, count)
    assert len(found) == count
    assert found == sorted(set(found))
    greatest = max(variance(subset) for subset in combinations(rewards, count))
    assert variance([rewards[place] for place in found]) == greatest


@given(REWARDS, st.randoms())
def test_the_kept_rewards_do_not_depend_on_the_order_of_the_samples(rewards: list[float], order: random.Random) -> None:
    shuffled = list(rewards)
    order.shuffle(shuffled)
    first, second = (sorted(one[k] for k in most_different(one, 2)) for one in (rewards, shuffled))
    assert first == second == [min(rewards), max(rewards)]


def test_of_right_and_wrong_answers_half_are_kept_of_each() -> None:
    assert kept(made([1, 1, 0, 1, 1, 0, 1, 0]), settings(4)) == [0, 1, 2, 5]
    assert kept(made([1, 1, 1, 0, 0, 0]), settings(3)) == [0, 1, 3], "of two equal splits that with more high rewards"
    assert kept(made([0, 0, 0, 1, 0, 0]), settings(4)) == [0, 1, 2, 3], "where one side has too few, all of it"


def test_of_splits_of_equal_variance_the_one_nearest_to_the_middle_wins() -> None:
    # Without -1.5 or without -2.5 the variance is the same: both lie 0.5 from the mean of the other three.
    assert kept(made([-5.0, -2.5, -1.5, -1.0, 0.0]), settings(4)) == [0, 1, 3, 4]
    assert kept(made([5.0, 2.5, 1.5, 1.0, 0.0]), settings(4)) == [0, 1, 3, 4]


def test_equal_rewards_keep_the_first() -> None:
    assert kept(made([0.7] * 6), settings(3)) == [0, 1, 2]


def test_samples_that_bear_no_loss_are_not_chosen() -> None:
    group = made([None, 5.0, 1.0, 0.0, 0.5, 0.6])
    group = group.with_samples([group.samples[0], replace(group.samples[1], finish=CUT), *group.samples[2:]])
    assert kept(group, settings(2, truncated="mask")) == [2, 3]
    assert kept(group, settings(2)) == [1, 3]


def test_a_group_with_no_more_than_that_stays_as_it_is() -> None:
    for group in (made([1.0, 0.0]), made([None, 1.0, 0.0, None]), made([None]), made([])):
        assert select_samples(group, settings(2)) is group
    group = made([1.0, 0.0, 0.5])
    assert select_samples(group, settings(None)) is group


def test_the_prompt_and_the_greedy_sample_stay_with_the_group() -> None:
    group = Group(made_prompt(), made([1.0, 0.0, 0.5]).samples, baseline=made([0.3]).samples[0])
    selected = select_samples(group, settings(2))
    assert (selected.prompt, selected.baseline) == (group.prompt, group.baseline)
    assert selected.samples == group.samples[:2]


def test_a_group_of_thousands_is_chosen_from() -> None:
    rewards = [float((place * 7919) % 4001) for place in range(4001)]
    assert sorted(rewards[k] for k in most_different(rewards, 4)) == [0, 1, 3999, 4000]


@pytest.mark.parametrize("finish", [ABORTED, FAILED])
def test_unfinished_samples_are_not_chosen(finish: FinishState) -> None:
    group = made([0.0, 1.0, 0.5, 0.6])
    samples = [replace(group.samples[0], finish=finish), *group.samples[1:]]
    assert kept(group.with_samples(samples), settings(2)) == [1, 2]
