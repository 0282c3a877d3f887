"""Estimators that know the place of a token, against loops written from their papers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from strop.algorithms.advantages.gae import estimated, gae
from strop.algorithms.advantages.optimal_token_baseline import optimal_token_baseline
from strop.algorithms.advantages.reinforce_pp import reinforce_pp, reinforce_pp_baseline
from strop.algorithms.advantages.remax import num_without_baseline, remax
from strop.algorithms.advantages.samples import discounted_sums
from strop.records import FinishState, Group, Sample
from support.advantages import drawn_group, drawn_sample, resolved, sampled_advantages

DRAWINGS = ["..xx...xxx", ".x", "...xxxx.", "..x.x.x"]
"""With and without what others said in between."""


def mixed_groups(*, token_rewards: bool = True) -> list[Group]:
    first = drawn_group([1.0, 0.0, 0.5, 0.25], DRAWINGS, token_rewards=token_rewards)
    second = drawn_group([0.0, 2.0], DRAWINGS[:2], token_rewards=token_rewards, baseline=1.0)
    forked = drawn_sample(2, 1.0, "..xx", "...x.xx", token_rewards=token_rewards)
    return [first, second.with_samples([*second.samples, forked, drawn_sample(3, None, "..xxx")])]


def field(sample: Sample, name: str) -> list[float]:
    """The values at the sampled tokens, one after the other over all rows."""
    return [
        float(row.fields[name][place]) if name in row.fields else 0.0
        for row in sample.rows
        for place in range(row.num_tokens)
        if row.loss_mask[place]
    ]


def rewards_of(sample: Sample, reward: float) -> list[float]:
    earned = field(sample, "token_rewards")
    earned[-1] += reward
    return earned


def returns_of(sample: Sample, reward: float, discount: float) -> list[float]:
    earned = rewards_of(sample, reward)
    return [
        math.fsum(discount ** (later - place) * earned[later] for later in range(place, len(earned)))
        for place in range(len(earned))
    ]


def whitened(values: dict[tuple[int, int], list[float]]) -> dict[tuple[int, int], list[float]]:
    every = [value for of_sample in values.values() for value in of_sample]
    mean = math.fsum(every) / len(every)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in every) / len(every))
    return {key: [(value - mean) / deviation for value in of_sample] for key, of_sample in values.items()}


def check(groups: list[Group], expected: dict[tuple[int, int], list[float]]) -> None:
    """Advantages lie on rows as float32."""
    for g, group in enumerate(groups):
        for s, found in enumerate(sampled_advantages(group)):
            assert found == pytest.approx(expected.get((g, s), [0.0] * len(found)), rel=1e-5, abs=1e-6), (g, s)


def valid_samples(groups: list[Group]) -> dict[tuple[int, int], Sample]:
    return {
        (g, s): sample
        for g, group in enumerate(groups)
        for s, sample in enumerate(group.samples)
        if sample.reward is not None
    }


@pytest.mark.parametrize("discount", [1.0, 0.97, 0.3])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 8, 100, 10_000])
def test_discounted_sums_agree_with_the_recursion(discount: float, length: int) -> None:
    values = np.random.default_rng(length).normal(size=length)
    expected, later = np.zeros(length), 0.0
    for place in reversed(range(length)):
        later = values[place] + discount * later
        expected[place] = later
    np.testing.assert_allclose(discounted_sums(values, discount), expected, rtol=1e-10, atol=1e-10)


# --------------------------------------------------------------------------------------------- remax


@pytest.mark.parametrize("token_rewards", [True, False])
def test_remax_takes_the_greedy_samples_reward_off_what_is_still_to_come(token_rewards: bool) -> None:
    groups = mixed_groups(token_rewards=token_rewards)
    expected = {
        key: returns_of(sample, sample.reward - groups[key[0]].baseline.reward, 1.0)
        for key, sample in valid_samples(groups).items()
    }
    check(remax(groups, resolved("remax")), expected)


def test_remax_learns_from_equal_rewards_and_from_groups_of_one() -> None:
    (group,) = remax([drawn_group([1.0, 1.0])], resolved("remax"))
    assert sampled_advantages(group) == [[0.75, 0.75]] * 2
    (alone,) = remax([drawn_group([0.25])], resolved("remax"))
    assert sampled_advantages(alone) == [[0.0, 0.0]]


def test_remax_without_a_valid_baseline_teaches_nothing_and_counts_it() -> None:
    judged, unjudged = drawn_group([1.0, 0.0]), drawn_group([1.0, 0.0], baseline=None)
    aborted = replace(judged, baseline=replace(judged.baseline, finish=FinishState.ABORTED))
    groups = [judged, unjudged, aborted]
    assert num_without_baseline(groups) == 2
    check(remax(groups, resolved("remax")), {(0, 0): [0.75, 0.75], (0, 1): [-0.25, -0.25]})


def test_remax_refuses_groups_that_were_sampled_without_a_baseline() -> None:
    with pytest.raises(ValueError, match="must have a greedy baseline"):
        remax([replace(drawn_group([1.0]), baseline=None)], resolved("remax"))


# --------------------------------------------------------------------------------------------- reinforce++


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_reinforce_pp_normalises_token_returns_over_the_batch(discount: float) -> None:
    groups = mixed_groups()
    returns = {key: returns_of(sample, sample.reward, discount) for key, sample in valid_samples(groups).items()}
    check(reinforce_pp(groups, resolved("reinforce_pp", discount=discount)), whitened(returns))


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_reinforce_pp_with_baseline_takes_the_group_mean_off_the_reward_first(discount: float) -> None:
    groups = mixed_groups()
    means = [sum(group.valid_rewards) / len(group.valid_rewards) for group in groups]
    returns = {
        key: returns_of(sample, sample.reward - means[key[0]], discount)
        for key, sample in valid_samples(groups).items()
    }
    settings = resolved("reinforce_pp_baseline", discount=discount)
    check(reinforce_pp_baseline(groups, settings), whitened(returns))


def test_returns_are_carried_over_what_the_policy_did_not_sample() -> None:
    group = drawn_group([1.0, 0.0], ["..x......x", "..xx"])
    (found,) = reinforce_pp([group], resolved("reinforce_pp", discount=0.5))
    before, after = sampled_advantages(found)[0]
    assert (before, after) == pytest.approx(whitened({(0, 0): [0.5, 1.0], (0, 1): [0.0, 0.0]})[0, 0], rel=1e-6)


def test_one_of_four_solved_is_normalised_with_n_over_tokens_of_equal_number() -> None:
    (group,) = reinforce_pp([drawn_group([1.0, 0.0, 0.0, 0.0])], resolved("reinforce_pp"))
    assert [values[0] for values in sampled_advantages(group)] == pytest.approx(
        [math.sqrt(3), *[-math.sqrt(3) / 3] * 3]
    )


# --------------------------------------------------------------------------------------------- gae


def gae_oracle(sample: Sample, discount: float, decay: float) -> list[float]:
    """The sum of all later differences, from equation 16 of the paper."""
    earned, values = rewards_of(sample, sample.reward), field(sample, "values")
    values_after = [*values[1:], 0.0]
    deltas = [r + discount * after - v for r, after, v in zip(earned, values_after, values, strict=True)]
    return [
        math.fsum((discount * decay) ** (later - place) * deltas[later] for later in range(place, len(deltas)))
        for place in range(len(deltas))
    ]


@pytest.mark.parametrize(("discount", "decay"), [(1.0, 0.95), (0.99, 0.9), (1.0, 1.0), (1.0, 0.0)])
def test_gae_agrees_with_its_sum_and_is_whitened_over_the_batch(discount: float, decay: float) -> None:
    groups = mixed_groups()
    plain = {key: gae_oracle(sample, discount, decay) for key, sample in valid_samples(groups).items()}
    found = gae(groups, resolved("ppo", discount=discount, gae_lambda=decay))
    check(found, whitened(plain))
    for (g, s), advantages in plain.items():
        sample = found[g].samples[s]
        expected = [a + v for a, v in zip(advantages, field(sample, "values"), strict=True)]
        assert field(sample, "returns") == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("length", [1, 2, 17, 500])
def test_gae_of_one_trajectory_agrees_with_the_recursion_in_float64(length: int) -> None:
    generator = np.random.default_rng(length)
    rewards, values = generator.normal(size=(2, length))
    expected, later, value_after = np.zeros(length), 0.0, 0.0
    for place in reversed(range(length)):
        later = rewards[place] + 0.99 * value_after - values[place] + 0.99 * 0.95 * later
        expected[place], value_after = later, values[place]
    np.testing.assert_allclose(estimated(rewards, values, 0.99, 0.95), expected, rtol=1e-10, atol=1e-12)


def test_gae_without_discounts_compares_the_return_with_the_value() -> None:
    assert estimated(np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.25, 0.75]), 1.0, 1.0) == pytest.approx(
        [0.5, 0.75, 0.25]
    )
    assert estimated(np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.25, 0.75]), 1.0, 0.0) == pytest.approx(
        [-0.25, 0.5, 0.25]
    )


def test_an_invalid_sample_teaches_the_critic_nothing() -> None:
    (group,) = gae([drawn_group([1.0, None, 0.0])], resolved("ppo"))
    (row,) = group.samples[1].rows
    np.testing.assert_array_equal(row.fields["returns"], row.fields["values"])
    assert all(sample.rows[0].fields["returns"].dtype == np.float32 for sample in group.samples)


def test_a_missing_field_is_named() -> None:
    group = drawn_group([1.0, 0.0])
    bare = group.with_samples([replace(s, rows=(replace(s.rows[0], fields={}),)) for s in group.samples])
    with pytest.raises(ValueError, match="'values' before its advantages, sample 0"):
        gae([bare], resolved("ppo"))
    with pytest.raises(ValueError, match="'old_logprobs' before its advantages"):
        optimal_token_baseline([bare], resolved("otb"))


# --------------------------------------------------------------------------------------------- optimal token baseline


def baseline_oracle(samples: list[Sample], place: int) -> float:
    """The weighted mean over the samples that have a token there, or the last one that two samples share."""
    there = [sample for sample in samples if len(field(sample, "old_logprobs")) > place]
    if len(there) < 2:
        return baseline_oracle(samples, place - 1)
    above = below = 0.0
    for sample in there:
        logprobs, collisions = field(sample, "old_logprobs"), field(sample, "collisions")
        energy = sum(
            1 - 2 * math.exp(logprobs[t]) + collisions[t]
            for t in range(place + 1)
            if _positive(logprobs, collisions, t)
        )
        above += energy * returns_of(sample, sample.reward, 1.0)[place]
        below += energy
    return above / below


def _positive(logprobs: list[float], collisions: list[float], place: int) -> bool:
    return 1 - 2 * math.exp(logprobs[place]) + collisions[place] > 0


@pytest.mark.parametrize("token_rewards", [True, False])
def test_each_token_is_compared_with_the_baseline_of_least_variance(token_rewards: bool) -> None:
    groups = mixed_groups(token_rewards=token_rewards)
    expected = {}
    for g, group in enumerate(groups):
        samples = [sample for sample in group.samples if sample.reward is not None]
        for s, sample in enumerate(group.samples):
            if sample.reward is not None:
                returns = returns_of(sample, sample.reward, 1.0)
                expected[g, s] = [value - baseline_oracle(samples, place) for place, value in enumerate(returns)]
    check(optimal_token_baseline(groups, resolved("otb")), expected)


def test_an_uncertain_sample_weighs_more_in_the_baseline() -> None:
    sure, unsure = drawn_sample(0, 1.0, "..x"), drawn_sample(1, 0.0, "..x")
    sure, unsure = _scored(sure, 0.9, 0.82), _scored(unsure, 0.5, 0.5)
    (group,) = optimal_token_baseline([drawn_group([]).with_samples([sure, unsure])], resolved("otb"))
    weights = (1 - 1.8 + 0.82, 1 - 1.0 + 0.5)
    baseline = weights[0] / sum(weights)
    assert sampled_advantages(group) == [pytest.approx([1 - baseline], rel=1e-5), pytest.approx([-baseline], rel=1e-4)]


def test_a_policy_without_doubt_is_compared_with_the_plain_mean() -> None:
    samples = [_scored(drawn_sample(index, float(index), "..x"), 1.0, 1.0) for index in range(3)]
    (group,) = optimal_token_baseline([drawn_group([]).with_samples(samples)], resolved("otb"))
    assert sampled_advantages(group) == [[-1.0], [0.0], [1.0]]


def test_the_zero_of_rewards_is_of_no_matter_to_the_token_baseline() -> None:
    drawings = ["..xx", "..xxxxxxx", "..x"]
    (low,) = optimal_token_baseline([drawn_group([1.0, 0.0, 0.5], drawings)], resolved("otb"))
    (high,) = optimal_token_baseline([drawn_group([8.0, 7.0, 7.5], drawings)], resolved("otb"))
    for one, other in zip(sampled_advantages(low), sampled_advantages(high), strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-6)
    assert all(value != 0 for value in sampled_advantages(low)[1])


def _scored(sample: Sample, probability: float, collision: float) -> Sample:
    (row,) = sample.rows
    mask = row.loss_mask
    scores = {"old_logprobs": math.log(probability), "collisions": collision}
    return replace(
        sample, rows=(row.with_fields(**{name: np.where(mask, v, 0).astype(np.float32) for name, v in scores.items()}),)
    )
