"""What truncation and length cost, against the three cases of the paper written out."""

from dataclasses import replace

import pytest

from strop.algorithms.build import build_algorithm
from strop.algorithms.truncation import PART, judged_reward, overlong_punishment, shape_rewards
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.config.checks import refusals
from strop.config.load import load_config
from strop.records import FinishState, Group, RewardPart, Sample
from support.groups import made_prompt, made_row

STOPPED, LENGTH, ABORTED, FAILED = FinishState


def settings(policy: str, budget: int = 10, **overrides: object) -> ResolvedAlgorithm:
    return resolve_algorithm(AlgorithmConfig.model_validate({"truncated": policy, **overrides}), budget)


def sample(index: int, length: int, reward: float | None, finish: FinishState = STOPPED) -> Sample:
    parts = {"mine": RewardPart(reward)}
    return Sample(index, (made_row(([1, 2], False), ([3] * length, True)),), finish, reward, parts)


def group(*samples: Sample) -> Group:
    return Group(made_prompt(), samples)


def rewards(shaped: Group) -> list[float | None]:
    return [one.reward for one in shaped.samples]


MIXED = group(sample(0, 4, 1.0), sample(1, 10, 1.0, LENGTH), sample(2, 10, None, LENGTH), sample(3, 10, 1.0))


@pytest.mark.parametrize("policy", ["keep", "mask"])
def test_keep_and_mask_change_no_reward(policy: str) -> None:
    assert shape_rewards(MIXED, settings(policy)) == MIXED


def test_zero_takes_the_reward_of_cut_samples_and_leaves_invalid_ones_invalid() -> None:
    # The last sample is as long as the budget and stopped by itself: only the engine knows.
    shaped = shape_rewards(MIXED, settings("zero"))
    assert rewards(shaped) == [1.0, 0.0, None, 1.0]
    assert shaped.samples[1].reward_parts == {"mine": RewardPart(1.0), PART: RewardPart(-1.0)}
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


@pytest.mark.parametrize("policy", ["zero", "soft-overlong"])
def test_nothing_is_counted_twice(policy: str) -> None:
    once = shape_rewards(MIXED, settings(policy))
    assert shape_rewards(once, settings(policy)) == once


def test_what_is_shaped_gives_a_group_signal() -> None:
    algorithm = build_algorithm(settings("soft-overlong", drop_zero_signal=True))
    equal = group(sample(0, 2, 1.0), sample(1, 10, 1.0, LENGTH))
    assert algorithm.select([equal]) == []
    [kept] = algorithm.select([algorithm.shape(equal)])
    [advantages] = algorithm.advantages([kept])
    first, second = (one.rows[0].advantages[-1] for one in advantages.samples)
    assert first > 0 > second


def test_masked_samples_are_in_no_denominator_and_zeroed_ones_are() -> None:
    cut = group(sample(0, 4, 1.0), replace(sample(1, 4, 1.0), finish=LENGTH))
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
