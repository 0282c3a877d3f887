"""Group advantages against published numbers and a float64 oracle, and what holds for every estimator."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strop.algorithms.advantages.group import EPSILON, group_advantages
from strop.algorithms.advantages.table import ESTIMATORS, advantage_estimator
from strop.config.bundles import ResolvedAlgorithm
from strop.records import FinishState, Group, Row, Sample
from support.advantages import drawn_group, drawn_sample, resolved, sampled_advantages

NAMES = sorted(ESTIMATORS)
OVER_THE_BATCH = {"reinforce_pp", "reinforce_pp_baseline", "gdpo", "gae"}
"""Their groups are normalised together, so that a group is at 0 only with its batch."""
BY_THEMSELVES = {"remax", "reinforce_pp", "gae"}
"""Equal rewards of a group are no reason for 0."""


def settings_of(name: str, **overrides: object) -> ResolvedAlgorithm:
    return replace(resolved("grpo", **overrides), advantage=name, pass_k=2, discount=0.9)


def estimated(name: str, *groups: Group, **overrides: object) -> list[Group]:
    return advantage_estimator(name)(groups, settings_of(name, **overrides))


# --------------------------------------------------------------------------------------------- the group's mean


def test_one_of_four_solved_gives_the_published_numbers() -> None:
    assert group_advantages([1, 0, 0, 0], "sample") == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)
    assert group_advantages([1, 0, 0, 0], "population") == pytest.approx(
        [math.sqrt(3), *[-math.sqrt(3) / 3] * 3], rel=1e-5
    )
    assert group_advantages([1, 0, 0, 0], "none") == [0.75, -0.25, -0.25, -0.25]


def test_equal_rewards_give_exactly_zero_though_their_float32_deviation_is_not_zero() -> None:
    rewards = [float(np.float32(0.7))] * 8
    assert torch.full((8,), 0.7).std() > 0
    for std in ("sample", "population", "none"):
        assert group_advantages(rewards, std) == [0.0] * 8


def test_a_group_of_one_gives_zero() -> None:
    assert group_advantages([1.0], "sample") == [0.0]
    assert group_advantages([1.0], "none") == [0.0]


def test_an_invalid_reward_gets_zero_and_does_not_poison_its_group() -> None:
    assert group_advantages([1.0, None, 0.0, 0.0, 0.0], "sample") == pytest.approx([1.5, 0, -0.5, -0.5, -0.5], rel=1e-5)
    assert group_advantages([None, None], "sample") == [0.0, 0.0]
    assert group_advantages([None, 1.0], "sample") == [0.0, 0.0]


def test_an_empty_group_gives_nothing() -> None:
    assert group_advantages([], "sample") == []


@given(st.lists(st.one_of(st.none(), st.floats(-100, 100)), max_size=12), st.sampled_from(["sample", "population"]))
def test_advantages_agree_with_a_float64_oracle(rewards: list[float | None], std: str) -> None:
    valid = np.array([r for r in rewards if r is not None], dtype=np.float64)
    found = group_advantages(rewards, std)
    if len(valid) < 2 or valid.max() == valid.min():
        assert found == [0.0] * len(rewards)
        return
    deviation = valid.std(ddof=1 if std == "sample" else 0) + EPSILON
    expected = [0.0 if r is None else (r - valid.mean()) / deviation for r in rewards]
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert abs(sum(found)) < 1e-6 * max(1, len(found))


# --------------------------------------------------------------------------------------------- every estimator


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_gives_some_sample_an_advantage(name: str) -> None:
    (group,) = estimated(name, drawn_group([1.0, 0.0, 0.0, 0.0]))
    assert max(max(values) for values in sampled_advantages(group)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_invalid_aborted_or_failed_sample_is_at_zero_and_in_no_statistic(name: str) -> None:
    whole = drawn_group([1.0, 0.0, 0.0, 0.0])
    (expected,) = estimated(name, whole)
    extra = [
        drawn_sample(4, None, "..xxxxxx"),
        drawn_sample(5, 9.0, "..xxxxxx", finish=FinishState.ABORTED),
        drawn_sample(6, -9.0, "..xxxxxx", finish=FinishState.FAILED),
    ]
    (found,) = estimated(name, whole.with_samples([*whole.samples, *extra]))
    assert sampled_advantages(found)[:4] == sampled_advantages(expected)
    assert sampled_advantages(found)[4:] == [[0.0] * 6] * 3


@pytest.mark.parametrize("name", NAMES)
def test_groups_without_any_valid_sample_are_at_zero(name: str) -> None:
    found = estimated(name, drawn_group([None, None]), drawn_group([]))
    assert sampled_advantages(found[0]) == [[0.0, 0.0]] * 2
    assert found[1].samples == ()
    assert estimated(name) == []


@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_THEMSELVES))
@pytest.mark.parametrize("num_samples", [1, 8])
def test_equal_rewards_leave_a_batch_at_exactly_zero(name: str, num_samples: int) -> None:
    groups = [drawn_group([reward] * num_samples, ["..x", *["..xxx"] * (num_samples - 1)]) for reward in (0.7, 0.1)]
    for group in estimated(name, *groups):
        assert not np.concatenate([np.ravel(values) for values in sampled_advantages(group)]).any()


@pytest.mark.parametrize("name", sorted(set(NAMES) - OVER_THE_BATCH))
def test_a_group_does_not_feel_the_other_groups(name: str) -> None:
    group = drawn_group([1.0, 0.5, 0.0])
    other = drawn_group([3.0, -2.0, 0.0], ["..xxxx", "..x", "..x"])
    assert sampled_advantages(estimated(name, group, other)[0]) == sampled_advantages(estimated(name, group)[0])


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_samples_is_of_no_matter(name: str) -> None:
    group = drawn_group([1.0, 0.0, 0.5, -0.25], ["..xx", "..x", "..xxxx", "..xxx"], token_rewards=True)
    order = [2, 0, 3, 1]
    (plain,) = estimated(name, group)
    (turned,) = estimated(name, group.with_samples([group.samples[place] for place in order]))
    for place, values in zip(order, sampled_advantages(turned), strict=True):
        assert values == pytest.approx(sampled_advantages(plain)[place], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rewards", [[1e308, -1e308, 1.7e308, 0.0], [1e200, -1e200, 0.0, 1.0], [5e-324, 0.0, 0.0, 0.0]])
def test_no_finite_reward_gives_an_advantage_that_is_not_finite(name: str, rewards: list[float]) -> None:
    for group in estimated(name, drawn_group(rewards), drawn_group([1.0, 0.0])):
        assert all(math.isfinite(value) for values in sampled_advantages(group) for value in values)


@pytest.mark.parametrize("name", ["group", "reinforce_pp_baseline", "gdpo", "pass_at_k", "maxrl"])
def test_rewards_of_any_size_teach_the_same_where_they_are_normalised(name: str) -> None:
    (small,) = estimated(name, drawn_group([3.0, -1.0, 2.0, 0.0]))
    (huge,) = estimated(name, drawn_group([3e307, -1e307, 2e307, 0.0]))
    for low, high in zip(sampled_advantages(small), sampled_advantages(huge), strict=True):
        assert high == pytest.approx(low, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_of_0_to_10_000_tokens_and_samples_without_rows_are_served_together(name: str) -> None:
    group = drawn_group([1.0, 0.0, 0.5, 0.25, 1.0], ["..", "..x", ".." + "x" * 10_000, ".." + "x" * 37, ".."])
    group = group.with_samples([*group.samples, drawn_sample(5, 0.5)])
    (found,) = estimated(name, group)
    values = sampled_advantages(found)
    assert [len(of_sample) for of_sample in values] == [0, 1, 10_000, 37, 0, 0]
    assert all(math.isfinite(value) for of_sample in values for value in of_sample)
    assert all(row.advantages is not None for sample in found.samples for row in sample.rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_forked_conversation_is_one_trajectory_with_one_reward(name: str) -> None:
    """The same sampled tokens in one row, in one row around a tool's output, or in two rows."""
    whole = drawn_group([1.0, 0.0, 0.5], ["..xxxxx"] * 3)
    forked = whole.with_samples([_cut(sample) for sample in whole.samples])
    (expected,), (found,) = estimated(name, whole), estimated(name, forked)
    assert [len(sample.rows) for sample in found.samples] == [2, 2, 2]
    assert sampled_advantages(found) == sampled_advantages(expected)


def _cut(sample: Sample) -> Sample:
    (row,) = sample.rows

    def part(places: list[int]) -> Row:
        return replace(
            row,
            token_ids=row.token_ids[places],
            loss_mask=row.loss_mask[places],
            rollout_logprobs=row.rollout_logprobs[places],
            policy_versions=row.policy_versions[places],
            fields={name: values[places] for name, values in row.fields.items()},
        )

    return replace(sample, rows=(part([0, 1, 2, 3, 0, 1]), part([0, 1, 1, 4, 0, 5, 6, 1])))


@pytest.mark.parametrize("name", sorted(OVER_THE_BATCH))
def test_a_truncated_sample_that_is_masked_is_in_no_statistic_of_the_batch(name: str) -> None:
    group = drawn_group([1.0, 0.0, 1.0, 0.0])
    cut = replace(group.samples[3], finish=FinishState.LENGTH)
    long = replace(drawn_sample(3, 0.0, "..x" + "x" * 50), finish=FinishState.LENGTH)
    with_cut, with_long = (group.with_samples([*group.samples[:3], sample]) for sample in (cut, long))
    if name != "gdpo":
        kept = [estimated(name, chosen)[0] for chosen in (with_cut, with_long)]
        assert sampled_advantages(kept[0])[:3] != sampled_advantages(kept[1])[:3]
    masked = [estimated(name, chosen, truncated="mask")[0] for chosen in (with_cut, with_long)]
    assert sampled_advantages(masked[0])[:3] == sampled_advantages(masked[1])[:3]
    kept_alone = estimated(name, with_cut)[0]
    assert sampled_advantages(masked[0])[:3] != sampled_advantages(kept_alone)[:3]
