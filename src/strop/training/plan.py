"""Cuts a mini-batch into micro-batches by a token budget, with what samples share counted once.

    samples of a group --split where the group exceeds the budget--> parts --next fit--> micro-batches

A sample is never split, whatever its length; a group only where it must be (each part then repeats the
prompt), and not at all where its samples are compared with each other. Nothing has to be divisible by anything,
and the cut changes memory and speed but no result: the weights of the loss were fixed over the whole mini-batch
before.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from strop.records import Group, MicroBatchPlan, PackedBatch
from strop.records.packing import SampleKey, num_packed_tokens, pack


@dataclass(frozen=True, slots=True)
class _Part:
    """Samples of one group that go into one micro-batch, and the tokens that they take packed together."""

    keys: tuple[SampleKey, ...]
    num_tokens: int


def plan_micro_batches(
    groups: Sequence[Group],
    keys: Iterable[SampleKey],
    weights: Mapping[SampleKey, float],
    *,
    max_tokens: int,
    share_prefix: bool = True,
    whole_groups: bool = False,
) -> MicroBatchPlan:
    """Packs the samples that bear loss into micro-batches of at most `max_tokens` tokens.

    Args:
        groups: the step's groups.
        keys: (group, sample) of the mini-batch's samples.
        weights: the aggregation weight of each sampled token of a sample, over the whole mini-batch.
            Samples of weight 0, not among the weights, or without a sampled token are left out.
        max_tokens: the budget. A single sample above it forms a micro-batch of its own.
        share_prefix: False computes every row on its own, for models with recurrent layers.
        whole_groups: keeps the samples of a group in one micro-batch, also where they exceed the budget together.

    Returns:
        Micro-batches in the order of (group, sample), each with `weights` in `fields_N`.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    bearing = bearing_keys(groups, keys, weights)
    cuts = _cut(groups, bearing, max_tokens, share_prefix, whole_groups=whole_groups)
    batches = [pack(groups, cut, share_prefix=share_prefix) for cut in cuts]
    return MicroBatchPlan(tuple(_with_weights(batch, weights) for batch in batches))


def bearing_keys(
    groups: Sequence[Group], keys: Iterable[SampleKey], weights: Mapping[SampleKey, float]
) -> list[SampleKey]:
    """Returns the samples that bear loss, in order: with a weight and at least one sampled token."""
    return [key for key in sorted(keys) if weights.get(key, 0.0) != 0 and _sample_tokens(groups, key)]


def _sample_tokens(groups: Sequence[Group], key: SampleKey) -> int:
    group_index, sample_index = key
    return groups[group_index].samples[sample_index].num_sampled_tokens


def _cut(
    groups: Sequence[Group], keys: Sequence[SampleKey], max_tokens: int, share_prefix: bool, *, whole_groups: bool
) -> list[list[SampleKey]]:
    """Fills micro-batches in order, opening the next where a part does not fit any more."""
    by_group: dict[int, list[SampleKey]] = defaultdict(list)
    for key in keys:
        by_group[key[0]].append(key)
    cuts: list[list[SampleKey]] = []
    num_tokens = 0
    for group_index, group_keys in by_group.items():
        group = groups[group_index]
        whole = [_part(group, group_keys, share_prefix)] if whole_groups else []
        for part in whole or _split_group(group, group_keys, max_tokens, share_prefix):
            if not cuts or num_tokens + part.num_tokens > max_tokens:
                cuts.append([])
                num_tokens = 0
            cuts[-1].extend(part.keys)
            num_tokens += part.num_tokens
    return cuts


def _split_group(group: Group, keys: Sequence[SampleKey], max_tokens: int, share_prefix: bool) -> list[_Part]:
    """Returns the group as one part where it fits the budget, else as few parts as filling in order gives."""
    whole = _part(group, keys, share_prefix)
    if whole.num_tokens <= max_tokens or len(keys) == 1:
        return [whole]
    parts: list[_Part] = []
    for key in keys:
        grown = _part(group, [*parts[-1].keys, key], share_prefix) if parts else None
        if grown is not None and grown.num_tokens <= max_tokens:
            parts[-1] = grown
        else:
            parts.append(_part(group, [key], share_prefix))
    return parts


def _part(group: Group, keys: Sequence[SampleKey], share_prefix: bool) -> _Part:
    rows = [row for _, sample_index in keys for row in group.samples[sample_index].rows]
    return _Part(tuple(keys), num_packed_tokens(rows, share_prefix=share_prefix))


def _with_weights(batch: PackedBatch, weights: Mapping[SampleKey, float]) -> PackedBatch:
    weights_S = torch.tensor([weights[key] for key in batch.sample_keys], dtype=torch.float32)
    return batch.with_fields(weights=weights_S[batch.sample_ids_N])
