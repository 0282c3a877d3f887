"""A mini-batch is cut by a token budget, whatever divides whatever, and no sample is lost, doubled or split."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.records import Group
from strop.training.plan import plan_micro_batches
from support.tiny import tiny_groups
from support.training import all_keys, tiny_plan, uneven_weights


def group_of(prompt_tokens: int, sampled_tokens: int, group_size: int) -> list[Group]:
    exact = {"prompt_tokens": (prompt_tokens, prompt_tokens), "sampled_tokens": (sampled_tokens, sampled_tokens)}
    return tiny_groups(num_groups=1, group_size=group_size, **exact)


@given(num_groups=st.integers(1, 4), group_size=st.integers(1, 5), max_tokens=st.integers(1, 80), share=st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_sample_is_in_exactly_one_micro_batch_and_the_budget_holds(
    num_groups: int, group_size: int, max_tokens: int, share: bool
) -> None:
    groups = tiny_groups(num_groups, group_size)
    plan = tiny_plan(groups, max_tokens, share)
    assert [key for batch in plan.micro_batches for key in batch.sample_keys] == all_keys(groups)
    for batch in plan.micro_batches:
        assert batch.num_tokens <= max_tokens or batch.num_samples == 1


def test_a_prompt_is_counted_once_a_micro_batch() -> None:
    groups = group_of(prompt_tokens=10, sampled_tokens=5, group_size=4)
    # The last token of a row predicts nothing and is not stored: 10 + 4 * 4.
    assert [batch.num_tokens for batch in tiny_plan(groups, 26).micro_batches] == [26]
    assert [batch.num_tokens for batch in tiny_plan(groups, 25).micro_batches] == [22, 14]
    assert [batch.num_tokens for batch in tiny_plan(groups, 28, share_prefix=False).micro_batches] == [28, 28]


def test_a_group_that_fits_the_budget_is_not_split_to_fill_a_micro_batch() -> None:
    groups = [*group_of(10, 5, 2), *group_of(10, 5, 2)]
    plan = tiny_plan(groups, 30)
    assert [batch.sample_keys for batch in plan.micro_batches] == [((0, 0), (0, 1)), ((1, 0), (1, 1))]


def test_a_sample_over_the_budget_is_a_micro_batch_of_its_own() -> None:
    groups = [*group_of(2, 2, 1), *group_of(10, 20, 1), *group_of(2, 2, 1)]
    plan = tiny_plan(groups, 8)
    assert [batch.num_tokens for batch in plan.micro_batches] == [3, 29, 3]


@given(num_groups=st.integers(1, 4), max_tokens=st.integers(1, 60), share=st.booleans())
@settings(max_examples=40, deadline=None)
def test_groups_that_are_kept_whole_lie_in_one_micro_batch_in_order(
    num_groups: int, max_tokens: int, share: bool
) -> None:
    groups = tiny_groups(num_groups, 2)
    keys, weights = all_keys(groups), uneven_weights(groups)
    plan = plan_micro_batches(groups, keys, weights, max_tokens=max_tokens, share_prefix=share, whole_groups=True)
    assert [key for batch in plan.micro_batches for key in batch.sample_keys] == keys
    for batch in plan.micro_batches:
        assert [sample for _, sample in batch.sample_keys] == [0, 1] * (batch.num_samples // 2)
        assert batch.num_tokens <= max_tokens or batch.num_samples == 2


def test_weights_reach_every_target_of_their_sample() -> None:
    groups = tiny_groups()
    weights = uneven_weights(groups)
    for batch in tiny_plan(groups, 20).micro_batches:
        expected = [weights[batch.sample_keys[index]] for index in batch.sample_ids_N]
        torch.testing.assert_close(batch.fields_N["weights"], torch.tensor(expected))


def test_samples_without_weight_or_without_a_sampled_token_are_left_out() -> None:
    groups = tiny_groups(num_groups=1, group_size=4)
    weights = {(0, 0): 1.0, (0, 1): 0.0, (0, 3): 1.0}
    silent = replace(groups[0].samples[3], rows=())
    groups = [groups[0].with_samples([*groups[0].samples[:3], silent])]
    plan = plan_micro_batches(groups, all_keys(groups), weights, max_tokens=100)
    assert [batch.sample_keys for batch in plan.micro_batches] == [((0, 0),)]


def test_an_empty_mini_batch_is_an_empty_plan() -> None:
    assert plan_micro_batches([], [], {}, max_tokens=10).micro_batches == ()


def test_the_order_of_keys_changes_nothing() -> None:
    groups = tiny_groups(3, 3)
    weights = uneven_weights(groups)
    plans = [plan_micro_batches(groups, keys, weights, max_tokens=25) for keys in (all_keys(groups), [*weights][::-1])]
    first, second = ([batch.sample_keys for batch in plan.micro_batches] for plan in plans)
    assert first == second


def test_a_budget_below_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens must be at least 1, got 0"):
        tiny_plan(tiny_groups(), 0)
