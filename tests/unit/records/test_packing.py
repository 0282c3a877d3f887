"""Packing against a slow oracle that walks every row token by token."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.records import FinishState, Group, PackedBatch, Prompt, Row, Sample
from strop.records.packing import MIN_SHARED_TOKENS, num_packed_tokens, pack


def make_row(token_ids: list[int], first_sampled: int) -> Row:
    ids = np.array(token_ids, dtype=np.int64)
    mask = np.arange(len(ids)) >= first_sampled
    logprobs = np.where(mask, -np.arange(len(ids)) / 7 - ids, 0).astype(np.float32)
    return Row(ids, mask, logprobs, np.where(mask, 3, -1).astype(np.int64))


def make_group(rows_by_sample: list[list[Row]], group_index: int = 0) -> Group:
    prompt = Prompt(f"p{group_index}", 0, np.array([1]), (), "task")
    samples = tuple(Sample(i, tuple(rows), FinishState.STOPPED) for i, rows in enumerate(rows_by_sample))
    return Group(prompt, samples)


def ancestors(batch: PackedBatch, position: int) -> list[int]:
    """The flat positions that the token at `position` may see, itself included, by walking up the tree."""
    index = next(i for i, s in enumerate(batch.segments) if s.start <= position < s.stop)
    seen = list(range(batch.segments[index].start, position + 1))
    parent = batch.segments[index].parent
    while parent is not None:
        segment = batch.segments[parent]
        seen = [*range(segment.start, segment.stop), *seen]
        parent = segment.parent
    return seen


def assert_batch_is_its_rows(batch: PackedBatch, expected: list[tuple[Row, int]]) -> None:
    """Every prediction sees exactly its row's prefix, and carries its row's fields."""
    found = []
    for n in range(batch.num_targets):
        visible = ancestors(batch, int(batch.source_index_N[n]))
        assert batch.ordinals_T[visible].tolist() == list(range(len(visible)))
        context = tuple(batch.token_ids_T[visible].tolist())
        logprob = float(batch.fields_N["rollout_logprobs"][n])
        found.append((int(batch.sample_ids_N[n]), context, int(batch.target_ids_N[n]), round(logprob, 4)))
    wanted = [
        (sample_id, tuple(row.token_ids[:t].tolist()), int(row.token_ids[t]), round(float(row.rollout_logprobs[t]), 4))
        for row, sample_id in expected
        for t in np.flatnonzero(row.loss_mask)
    ]
    assert sorted(found) == sorted(wanted)


def test_a_prompt_is_stored_once_and_predicts_every_first_token() -> None:
    prompt = [5, 6, 7]
    group = make_group([[make_row([*prompt, 10, 11, 12], 3)], [make_row([*prompt, 20, 21], 3)]])
    batch = pack([group], [(0, 0), (0, 1)])
    assert batch.token_ids_T.tolist() == [5, 6, 7, 10, 11, 20]
    assert batch.ordinals_T.tolist() == [0, 1, 2, 3, 4, 3]
    assert batch.source_index_N.tolist() == [2, 3, 4, 2, 5]
    assert batch.target_ids_N.tolist() == [10, 11, 12, 20, 21]
    assert batch.sample_ids_N.tolist() == [0, 0, 0, 1, 1]
    assert [(s.start, s.stop, s.parent, s.subtree_stop) for s in batch.segments] == [
        (0, 3, None, 6),
        (3, 5, 0, 5),
        (5, 6, 0, 6),
    ]


def test_without_sharing_every_row_is_a_root() -> None:
    group = make_group([[make_row([5, 6, 10, 11], 2)], [make_row([5, 6, 20], 2)]])
    batch = pack([group], [(0, 0), (0, 1)], share_prefix=False)
    assert batch.token_ids_T.tolist() == [5, 6, 10, 5, 6]
    assert all(segment.parent is None for segment in batch.segments)


def test_single_token_completions_need_no_segment_of_their_own() -> None:
    group = make_group([[make_row([5, 6, 10], 2)], [make_row([5, 6, 20], 2)]])
    batch = pack([group], [(0, 0), (0, 1)])
    assert batch.token_ids_T.tolist() == [5, 6]
    assert batch.source_index_N.tolist() == [1, 1]


def test_long_common_completions_are_shared_and_short_ones_are_not() -> None:
    common = list(range(100, 100 + MIN_SHARED_TOKENS))
    long = make_group([[make_row([5, *common, 1, 2], 1)], [make_row([5, *common, 3, 4], 1)], [make_row([5, 9, 9], 1)]])
    batch = pack([long], [(0, 0), (0, 1), (0, 2)])
    assert batch.num_tokens == 1 + MIN_SHARED_TOKENS + 1 + 1 + 1
    short = make_group([[make_row([5, 8, 1, 2], 1)], [make_row([5, 8, 3, 4], 1)], [make_row([5, 9, 9], 1)]])
    assert pack([short], [(0, 0), (0, 1), (0, 2)]).num_tokens == 1 + 2 + 2 + 1


def test_samples_without_sampled_tokens_keep_their_key_and_bear_no_loss() -> None:
    group = make_group([[make_row([5, 6], 2)], [make_row([5, 6, 7], 2)]])
    batch = pack([group], [(0, 0), (0, 1)])
    assert batch.sample_keys == ((0, 0), (0, 1))
    assert batch.sample_ids_N.tolist() == [1]


def test_an_empty_batch_has_no_tokens() -> None:
    batch = pack([], [])
    assert (batch.num_tokens, batch.num_targets, batch.num_samples) == (0, 0, 0)


def test_advantages_must_be_set_on_all_rows_or_none() -> None:
    group = make_group([[make_row([5, 6, 7], 2)], [make_row([5, 6, 7], 2)]])
    half = group.with_samples([group.samples[0].with_token_advantage(0.5), group.samples[1]])
    with pytest.raises(ValueError, match="advantages must be set on all rows"):
        pack([half], [(0, 0), (0, 1)])
    whole = group.with_samples([s.with_token_advantage(float(s.index)) for s in group.samples])
    assert torch.equal(pack([whole], [(0, 0), (0, 1)]).fields_N["advantages"], torch.tensor([0.0, 1.0]))


def token_runs() -> st.SearchStrategy[list[int]]:
    """Runs over two symbols, so that accidental common prefixes of all lengths are frequent."""
    return st.lists(st.integers(0, 1), min_size=0, max_size=40)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), min_size=1, max_size=20),
            st.lists(st.tuples(token_runs(), st.integers(0, 20)), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_packed_rows_are_the_rows(specs: list[tuple[list[int], list[tuple[list[int], int]]]], share: bool) -> None:
    groups, keys, expected = [], [], []
    for g, (prompt, completions) in enumerate(specs):
        rows = []
        for completion, observation in completions:
            row = make_row(prompt + completion, len(prompt))
            mask = row.loss_mask.copy()
            mask[len(prompt) : len(prompt) + observation] &= np.arange(len(mask[len(prompt) :][:observation])) % 3 == 0
            rows.append(Row(row.token_ids, mask, np.where(mask, row.rollout_logprobs, 0), row.policy_versions))
        groups.append(make_group([[row] for row in rows], g))
        for s, row in enumerate(rows):
            expected.append((row, len(keys)))
            keys.append((g, s))
    batch = pack(groups, keys, share_prefix=share)
    assert_batch_is_its_rows(batch, expected)
    for segment in batch.segments:
        if segment.parent is not None:
            parent = batch.segments[segment.parent]
            assert parent.stop <= segment.start
            assert segment.subtree_stop <= parent.subtree_stop
    if share:
        assert batch.num_tokens == sum(num_packed_tokens([row for s in g.samples for row in s.rows]) for g in groups)
