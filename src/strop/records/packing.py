"""Packing: rows become a tree of segments in which what rows share from the start is stored once.

A group's rows are a radix tree: the prompt is its root, completions are its leaves, and multi-turn rows may
share longer prefixes. A common run is shared when it is the prompt-like start of all rows at a node, or at
least `MIN_SHARED_TOKENS` long; below that a further segment costs more than it saves.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from strop.records.packed import PackedBatch, Segment
from strop.records.samples import Group, Row, Sample
from strop.records.schema import ROW_FIELDS, FieldSpec

MIN_SHARED_TOKENS = 16
"""A shared run shorter than this is stored once a row instead."""

SampleKey = tuple[int, int]
"""(group, sample) index in a list of groups."""

RowKey = tuple[int, int, int]
"""(group, sample, row) index in a list of groups."""

_OWN_FIELDS = frozenset(("rollout_logprobs", "policy_versions", "advantages"))
"""Fields that are attributes of a row."""


def pack(groups: Sequence[Group], keys: Sequence[SampleKey], *, share_prefix: bool = True) -> PackedBatch:
    """Packs the named samples into one micro-batch.

    Args:
        groups: the step's groups.
        keys: (group, sample) of each sample to include; samples of one group share what they can.
        share_prefix: False stores every row on its own, for models with recurrent layers.

    Returns:
        A batch on the CPU with every field of `records.schema.ROW_FIELDS` that the rows have.
    """
    builder = _Builder()
    by_group: dict[int, list[_Entry]] = defaultdict(list)
    for sample_id, (group_index, sample_index) in enumerate(keys):
        for row_index, row in enumerate(groups[group_index].samples[sample_index].rows):
            if row.num_sampled_tokens:
                key = (group_index, sample_index, row_index)
                by_group[group_index].append(_Entry(row, sample_id, key))
    for entries in by_group.values():
        if share_prefix:
            builder.add_tree(entries)
        else:
            for entry in entries:
                builder.add_tree([entry])
    return builder.build(tuple(keys))


class PackedSize(NamedTuple):
    """How much there is to compute in packed rows."""

    num_tokens: int
    num_pairs: int
    """Tokens that attend to a token, themselves included, summed over the tokens."""
    num_targets: int


def packed_size(rows: Sequence[Row], *, share_prefix: bool = True) -> PackedSize:
    """Returns what the rows of one group take once packed together."""
    builder = _Builder()
    entries = [_Entry(row, 0, (0, 0, 0)) for row in rows if row.num_sampled_tokens]
    for part in [entries] if share_prefix else [[entry] for entry in entries]:
        builder.add_tree(part)
    num_pairs = sum(int(ordinals.sum()) for ordinals in builder.ordinals) + builder.num_tokens
    return PackedSize(builder.num_tokens, num_pairs, sum(entry.row.num_sampled_tokens for entry in entries))


def num_packed_tokens(rows: Sequence[Row], *, share_prefix: bool = True) -> int:
    """Returns how many tokens the rows of one group take once packed together."""
    return packed_size(rows, share_prefix=share_prefix).num_tokens


def with_target_fields(
    groups: Sequence[Group], batches: Sequence[PackedBatch], values: Sequence[torch.Tensor], name: str
) -> list[Group]:
    """Puts what was worked out for the targets of packed batches back on the rows that they were packed from.

    Args:
        groups: those that the batches were packed from.
        batches: they hold every row at most once.
        values: one [N] or [N, K] tensor a batch.
        name: of the field, from `records.schema`.

    Returns:
        The groups; rows that are in no batch are without the field.
    """
    found: dict[RowKey, NDArray[Any]] = {}
    for batch, values_N in zip(batches, values, strict=True):
        rows = [groups[g].samples[s].rows[r] for g, s, r in batch.row_keys]
        parts = torch.split(values_N.cpu(), [row.num_sampled_tokens for row in rows])
        found |= {
            key: _at_sampled(row, part.numpy()) for key, row, part in zip(batch.row_keys, rows, parts, strict=True)
        }
    return [
        group.with_samples([_with_rows(sample, (g, s), name, found) for s, sample in enumerate(group.samples)])
        for g, group in enumerate(groups)
    ]


def _with_rows(sample: Sample, key: SampleKey, name: str, found: Mapping[RowKey, NDArray[Any]]) -> Sample:
    rows = (
        row.with_fields(**{name: found[*key, index]}) if (*key, index) in found else row
        for index, row in enumerate(sample.rows)
    )
    return replace(sample, rows=tuple(rows))


def _at_sampled(row: Row, values: NDArray[Any]) -> NDArray[Any]:
    """The values of the sampled tokens at their places, 0 at all others."""
    whole = np.zeros((row.num_tokens, *values.shape[1:]), dtype=values.dtype)
    whole[row.loss_mask] = values
    return whole


class _Entry(NamedTuple):
    row: Row
    sample_id: int
    key: RowKey


@dataclass
class _Branch:
    """Rows that agree in their first `depth` tokens, below the segment `parent`."""

    entries: list[_Entry]
    depth: int
    parent: int | None
    path: list[tuple[int, int]]
    """(first ordinal, flat start) of each segment from the root down."""


@dataclass
class _Builder:
    tokens: list[NDArray[np.int64]] = field(default_factory=list)
    ordinals: list[NDArray[np.int64]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    sources: list[NDArray[np.int64]] = field(default_factory=list)
    entries: list[_Entry] = field(default_factory=list)
    num_tokens: int = 0

    def add_tree(self, entries: list[_Entry]) -> None:
        """Adds rows that may share prefixes; rows with different first tokens become separate roots."""
        for branch in self._split(_Branch(entries, depth=0, parent=None, path=[])):
            self._add_branch(branch)

    def _add_branch(self, branch: _Branch) -> None:
        """Stores the run that all rows of the branch share, then what lies below it, depth first."""
        stop = branch.depth + _common_length(branch)
        segment_index = len(self.segments)
        start = self.num_tokens
        self._append_tokens(branch.entries[0].row, branch.depth, stop)
        self.segments.append(Segment(start, self.num_tokens, branch.parent, self.num_tokens))
        path = [*branch.path, (branch.depth, start)]
        below = _Branch([], stop, segment_index, path)
        for entry in branch.entries:
            if _num_stored(entry.row) == stop:
                self._finish_row(entry, path)
            else:
                below.entries.append(entry)
        for child in self._split(below):
            self._add_branch(child)
        self.segments[segment_index] = Segment(start, start + stop - branch.depth, branch.parent, self.num_tokens)

    def _split(self, branch: _Branch) -> Iterable[_Branch]:
        """Parts the rows by their next token; a part that shares too little falls apart into single rows."""
        parts: dict[int, list[_Entry]] = defaultdict(list)
        for entry in branch.entries:
            parts[int(entry.row.token_ids[branch.depth])].append(entry)
        for entries in parts.values():
            part = _Branch(entries, branch.depth, branch.parent, branch.path)
            if len(entries) == 1 or branch.parent is None or _common_length(part) >= MIN_SHARED_TOKENS:
                yield part
            else:
                for entry in entries:
                    yield _Branch([entry], branch.depth, branch.parent, branch.path)

    def _append_tokens(self, row: Row, start: int, stop: int) -> None:
        self.tokens.append(row.token_ids[start:stop])
        self.ordinals.append(np.arange(start, stop, dtype=np.int64))
        self.num_tokens += stop - start

    def _finish_row(self, entry: _Entry, path: list[tuple[int, int]]) -> None:
        """Records, for each sampled token, the flat position of the token before it."""
        source_ordinals = np.flatnonzero(entry.row.loss_mask) - 1
        first_ordinals = np.array([first for first, _ in path])
        offsets = np.array([flat_start - first for first, flat_start in path])
        segment = np.searchsorted(first_ordinals, source_ordinals, side="right") - 1
        self.sources.append(source_ordinals + offsets[segment])
        self.entries.append(entry)

    def build(self, keys: tuple[SampleKey, ...]) -> PackedBatch:
        ordinals = torch.from_numpy(_concatenated(self.ordinals))
        rows = [entry.row for entry in self.entries]
        sampled_counts = [row.num_sampled_tokens for row in rows]
        return PackedBatch(
            token_ids_T=torch.from_numpy(_concatenated(self.tokens)),
            ordinals_T=ordinals,
            rope_positions_T=ordinals.clone(),
            segments=tuple(self.segments),
            source_index_N=torch.from_numpy(_concatenated(self.sources)),
            target_ids_N=torch.from_numpy(_concatenated([row.token_ids[row.loss_mask] for row in rows])),
            sample_ids_N=torch.repeat_interleave(
                torch.tensor([entry.sample_id for entry in self.entries], dtype=torch.int64),
                torch.tensor(sampled_counts, dtype=torch.int64),
            ),
            sample_keys=keys,
            row_keys=tuple(entry.key for entry in self.entries),
            fields_N={spec.name: values for spec in ROW_FIELDS if (values := _target_field(spec, rows)) is not None},
        )


def _num_stored(row: Row) -> int:
    """A row's last token predicts nothing: it is not stored."""
    return row.num_tokens - 1


def _common_length(branch: _Branch) -> int:
    """How many stored tokens from `branch.depth` on all rows of the branch agree in."""
    first = branch.entries[0].row
    length = _num_stored(first) - branch.depth
    for row, *_ in branch.entries[1:]:
        length = min(length, _num_stored(row) - branch.depth)
        ours = first.token_ids[branch.depth : branch.depth + length]
        theirs = row.token_ids[branch.depth : branch.depth + length]
        different = np.flatnonzero(ours != theirs)
        length = int(different[0]) if len(different) else length
    return length


def _concatenated(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _target_field(spec: FieldSpec, rows: Sequence[Row]) -> torch.Tensor | None:
    """Gathers a row field at the sampled tokens; None where the field is optional and the rows lack it."""
    values: list[NDArray[Any] | None] = [
        getattr(row, spec.name) if spec.name in _OWN_FIELDS else row.fields.get(spec.name) for row in rows
    ]
    known = [value for value in values if value is not None]
    missing = len(values) - len(known)
    if missing and not (spec.optional and not known):
        raise ValueError(f"{spec.name} must be set on all rows of a batch or on none, got {missing} without")
    if missing:
        return None
    at_targets = [torch.from_numpy(value[row.loss_mask]) for value, row in zip(known, rows, strict=True)]
    return torch.cat([torch.empty(0, dtype=spec.dtype), *(part.to(spec.dtype) for part in at_targets)])
