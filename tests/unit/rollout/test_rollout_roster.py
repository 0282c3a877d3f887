"""Admission: in order, within both bounds, and compact afterwards."""

import pytest

from strop.records import FinishState
from strop.rollout import RequestRefusedError
from strop.rollout.native.roster import Roster
from strop.rollout.native.samples import GrowingGroup
from support.rollout import make_request


def group(prompt_length: int, group_size: int, budget: int) -> GrowingGroup:
    request = make_request(range(1, prompt_length + 1), group_size, max_new_tokens=budget)
    return GrowingGroup.from_request(request, max_length=10_000)


def test_samples_are_admitted_in_order_up_to_the_running_bound() -> None:
    roster = Roster(max_running=5, max_cache_tokens=10_000)
    groups = [group(4, 3, 8), group(4, 3, 8)]
    for one in groups:
        roster.enter(one)
    admitted = roster.admit(max_tokens=1000)
    assert [sample.group for sample in admitted] == [groups[0]] * 3 + [groups[1]] * 2
    assert roster.admit(max_tokens=1000) == []
    admitted[1].finish = FinishState.STOPPED
    _, moves = roster.retire()
    assert (moves.sources, moves.targets) == ([4], [1])
    assert roster.admit(max_tokens=1000) == [groups[1].samples[2]]


def test_the_cache_bound_counts_whole_rectangles_and_each_prompt_once() -> None:
    roster = Roster(max_running=64, max_cache_tokens=100)
    roster.enter(group(20, 8, 20))
    assert len(roster.admit(max_tokens=1000)) == 4  # 20 of the prompt and 4 times 20


def test_the_cache_bound_counts_a_prompt_for_each_sample_where_prompts_are_not_shared() -> None:
    roster = Roster(max_running=64, max_cache_tokens=100, shares_prompts=False)
    roster.enter(group(20, 8, 20))
    assert len(roster.admit(max_tokens=1000)) == 2


def test_one_prefill_counts_a_prompt_for_each_sample_that_brings_tokens_where_prompts_are_not_shared() -> None:
    roster = Roster(max_running=64, max_cache_tokens=10_000, shares_prompts=False)
    both = [group(50, 4, 8), group(50, 4, 8)]
    for sample in both[1].samples:
        sample.token_ids = [7, 7]
    for one in both:
        roster.enter(one)
    assert len(roster.admit(max_tokens=154)) == 4 + 2  # 50 for the first group, 52 for each sample of the second
    assert len(roster.admit(max_tokens=154)) == 2


def test_one_prefill_takes_no_more_tokens_than_asked_but_at_least_one_sample() -> None:
    roster = Roster(max_running=64, max_cache_tokens=10_000)
    for _ in range(3):
        roster.enter(group(50, 2, 8))
    assert len(roster.admit(max_tokens=10)) == 2
    assert len(roster.admit(max_tokens=100)) == 4


def test_a_request_that_never_fits_is_refused_with_both_numbers() -> None:
    roster = Roster(max_running=64, max_cache_tokens=100)
    with pytest.raises(RequestRefusedError, match=r"cache of 100 tokens.*together 101"):
        roster.require_fit(group(81, 1, 20))
    roster.require_fit(group(80, 1, 20))
