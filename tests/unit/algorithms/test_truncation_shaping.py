"""What truncation and length cost, against the three cases of the paper written out."""

from dataclasses import replace

import pytest

from strop.algorithms.build import build_algorithm
from strop.algorithms.shaping import (
    LENGTH,
    TRUNCATION,
    judged_reward,
    length_changes,
    overlong_punishment,
    shape_rewards,
)
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.config.checks import refusals
from strop.config.load import load_config
from strop.records import FinishState, Group, RewardPart, Sample
from support.groups import made_prompt, made_row

STOPPED, CUT, ABORTED, FAILED = FinishState


def settings(policy: str, budget: int = 10, **overrides: object) -> ResolvedAlgorithm:
    return resolve_algorithm(AlgorithmConfig.model_validate({"truncated": policy, **overrides}), budget)


def sample(index: int, length: int, reward: float | None, finish: FinishState = STOPPED) -> Sample:
    parts = {"mine": RewardPart(reward)}
    return Sample(index, (made_row(([1, 2], False), ([3] * length, True)),), finish, reward, parts)


def group(*samples: Sample) -> Group:
    return Group(made_prompt(), samples)


def rewards(shaped: Group) -> list[float | None]:
    return [one.reward for one in shaped.samples]


MIXED = group(sample(0, 4, 1.0), sample(1, 10, 1.0, CUT), sample(2, 10, None, CUT), sample(3, 10, 1.0))


@pytest.mark.parametrize("policy", ["keep", "mask"])
def test_keep_and_mask_change_no_reward(policy: str) -> None:
    assert shape_rewards(MIXED, settings(policy)) == MIXED


def test_zero_takes_the_reward_of_cut_samples_and_leaves_invalid_ones_invalid() -> None:
    # The last sample is as long as the budget and stopped by itself: only the engine knows.
    shaped = shape_rewards(MIXED, settings("zero"))
    assert rewards(shaped) == [1.0, 0.0, None, 1.0]
    assert shaped.samples[1].reward_parts == {"mine": RewardPart(1.0), TRUNCATION: RewardPart(-1.0)}
    assert shaped.samples[2] == MIXED.samples[2]


@pytest.mark.parametrize(("max_tokens", "buffer_tokens"), [(10, 4), (10, 10), (7, 1)])
def test_the_soft_punishment_is_that_of_the_paper(max_tokens: int, buffer_tokens: int) -> None:
    for length in range(15):
        if length <= max_tokens - buffer_tokens:
            expected = 0.0
        elif length <= max_tokens:
            expected = ((max_tokens - buffer_tokens) - length) / buffer_tokens
        else:
            expected = -1.0
        assert overlong_punishment(length, max_tokens, buffer_tokens) == pytest.approx(expected, abs=1e-12)


def test_the_soft_punishment_counts_sampled_tokens_of_any_sample_and_adds_up() -> None:
    samples = [sample(index, length, 1.0) for index, length in enumerate((6, 7, 8, 9))]
    shaped = shape_rewards(group(*samples), settings("soft-overlong", overlong_tokens=8, overlong_buffer_tokens=2))
    assert rewards(shaped) == [1.0, 0.5, 0.0, 0.0]
    for one in shaped.samples:
        assert sum(part.value or 0 for part in one.reward_parts.values()) == one.reward
        assert judged_reward(one) == 1.0


@pytest.mark.parametrize("policy", ["zero", "soft-overlong", "keep"])
def test_nothing_is_counted_twice(policy: str) -> None:
    chosen = settings(policy, length_penalty=0.3)
    once = shape_rewards(MIXED, chosen)
    assert rewards(once) != rewards(MIXED)
    assert shape_rewards(once, chosen) == once


def test_the_length_penalty_grows_from_nothing_for_the_shortest_to_all_of_it_for_the_longest() -> None:
    lengths, penalty = [40, 10, 20, 110], 0.5
    expected = [-penalty * (one - min(lengths)) / (max(lengths) - min(lengths)) for one in lengths]
    assert length_changes(lengths, penalty) == pytest.approx(expected, rel=1e-12)
    assert expected[1] == 0
    assert expected[3] == -penalty


def test_samples_without_a_reward_are_compared_with_nobody() -> None:
    assert length_changes([None, 10, 20, None], 0.5) == [0, 0, -0.5, 0]
    assert length_changes([1, None, 10_000], 0.5) == [0, 0, -0.5]


@pytest.mark.parametrize("lengths", [[], [7], [7, 7, 7], [None], [None, 7, 7], [0, 0]])
def test_where_lengths_do_not_differ_nothing_is_lost(lengths: list[int | None]) -> None:
    assert length_changes(lengths, 0.5) == [0.0] * len(lengths)


def test_the_length_penalty_is_a_reward_part_of_its_own_and_adds_up_with_truncation() -> None:
    shaped = shape_rewards(MIXED, settings("zero", length_penalty=0.3))
    assert rewards(shaped) == [1.0, -0.3, None, 0.7]
    assert shaped.samples[1].reward_parts == {
        "mine": RewardPart(1.0),
        TRUNCATION: RewardPart(-1.0),
        LENGTH: RewardPart(-0.3),
    }
    assert shaped.samples[2] == MIXED.samples[2]
    assert [judged_reward(one) for one in shaped.samples] == [1.0, 1.0, None, 1.0]


def test_right_answers_of_unequal_lengths_give_a_group_signal() -> None:
    algorithm = build_algorithm(settings("keep", drop_zero_signal=True, length_penalty=0.1))
    equal = group(sample(0, 2, 1.0), sample(1, 10, 1.0))
    assert algorithm.select([equal]) == []
    [kept] = algorithm.select([algorithm.shape(equal)])
    assert kept.has_signal


def test_what_is_shaped_gives_a_group_signal() -> None:
    algorithm = build_algorithm(settings("soft-overlong", drop_zero_signal=True))
    equal = group(sample(0, 2, 1.0), sample(1, 10, 1.0, CUT))
    assert algorithm.select([equal]) == []
    [kept] = algorithm.select([algorithm.shape(equal)])
    [advantages] = algorithm.advantages([kept])
    first, second = (one.rows[0].advantages[-1] for one in advantages.samples)
    assert first > 0 > second


def test_masked_samples_are_in_no_denominator_and_zeroed_ones_are() -> None:
    cut = group(sample(0, 4, 1.0), replace(sample(1, 4, 1.0), finish=CUT))
    assert build_algorithm(settings("mask")).weights([cut]) == {(0, 0): 1 / 4}
    assert build_algorithm(settings("zero")).weights([cut]) == {(0, 0): 1 / 8, (0, 1): 1 / 8}


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["algorithm.overlong_tokens=5"], "algorithm.overlong_tokens does nothing"),
        (["algorithm.overlong_buffer_tokens=5"], "algorithm.overlong_buffer_tokens does nothing"),
        (["algorithm.truncated=soft-overlong", "algorithm.overlong_tokens=999"], "at most rollout.max_new_tokens"),
        (
            ["algorithm.truncated=soft-overlong", "algorithm.overlong_tokens=9", "algorithm.overlong_buffer_tokens=10"],
            "at most algorithm.overlong_tokens (9)",
        ),
    ],
)
def test_lengths_that_do_nothing_or_cannot_work_are_refused(overrides: list[str], key: str) -> None:
    base = ["model.path=m", "data.task=math", "data.source={type='jsonl', path='x'}"]
    assert any(key in str(refusal) for refusal in refusals(load_config(None, [*base, *overrides])))
