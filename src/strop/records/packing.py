"""Packing: rows become a tree of segments in which what rows share from the start is stored once.

A group's rows are a radix tree: the prompt is its root, completions are its leaves, and multi-turn rows may
share longer prefixes. A common run is shared when it is the prompt-like start of all rows at a node, or at
least `MIN_SHARED_TOKENS` long; below that a further segment costs more than it saves.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from strop.records.packed import PackedBatch, Segment
from strop.records.samples import Group, Row
from strop.records.schema import ROW_FIELDS, FieldSpec

MIN_SHARED_TOKENS = 16
"""A shared run shorter than this is stored once a row instead."""

SampleKey = tuple[int, int]
"""(group, sample) index in a list of groups."""


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
    by_group: dict[int, list[tuple[Row, int]]] = defaultdict(list)
    for sample_id, (group_index, sample_index) in enumerate(keys):
        for row in groups[group_index].samples[sample_index].rows:
            if row.num_sampled_tokens:
                by_group[group_index].append((row, sample_id))
    for entries in by_group.values():
        if share_prefix:
            builder.add_tree(entries)
        else:
            for entry in entries:
                builder.add_tree([entry])
    return builder.build(tuple(keys))


def num_packed_tokens(rows: Sequence[Row], *, share_prefix: bool = True) -> int:
    """Returns how many tokens the rows of one group take once packed together."""
    builder = _Builder()
    entries = [(row, 0) for row in rows if row.num_sampled_tokens]
    for part in [entries] if share_prefix else [[entry] for entry in entries]:
        builder.add_tree(part)
    return builder.num_tokens


@dataclass
class _Branch:
    """Rows that agree in their first `depth` tokens, below the segment `parent`."""

    entries: list[tuple[Row, int]]
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
    rows: list[Row] = field(default_factory=list)
    row_sample_ids: list[int] = field(default_factory=list)
    num_tokens: int = 0

    def add_tree(self, entries: list[tuple[Row, int]]) -> None:
        """Adds rows that may share prefixes; rows with different first tokens become separate roots."""
        for branch in self._split(_Branch(entries, depth=0, parent=None, path=[])):
            self._add_branch(branch)

    def _add_branch(self, branch: _Branch) -> None:
        """Stores the run that all rows of the branch share, then what lies below it, depth first."""
        stop = branch.depth + _common_length(branch)
        segment_index = len(self.segments)
        start = self.num_tokens
        self._append_tokens(branch.entries[0][0], branch.depth, stop)
        self.segments.append(Segment(start, self.num_tokens, branch.parent, self.num_tokens))
        path = [*branch.path, (branch.depth, start)]
        below = _Branch([], stop, segment_index, path)
        for row, sample_id in branch.entries:
            if _num_stored(row) == stop:
                self._finish_row(row, sample_id, path)
            else:
                below.entries.append((row, sample_id))
        for child in self._split(below):
            self._add_branch(child)
        self.segments[segment_index] = Segment(start, start + stop - branch.depth, branch.parent, self.num_tokens)

    def _split(self, branch: _Branch) -> Iterable[_Branch]:
        """Parts the rows by their next token; a part that shares too little falls apart into single rows."""
        parts: dict[int, list[tuple[Row, int]]] = defaultdict(list)
        for row, sample_id in branch.entries:
            parts[int(row.token_ids[branch.depth])].append((row, sample_id))
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

    def _finish_row(self, row: Row, sample_id: int, path: list[tuple[int, int]]) -> None:
        """Records, for each sampled token, the flat position of the token before it."""
        source_ordinals = np.flatnonzero(row.loss_mask) - 1
        first_ordinals = np.array([first for first, _ in path])
        offsets = np.array([flat_start - first for first, flat_start in path])
        segment = np.searchsorted(first_ordinals, source_ordinals, side="right") - 1
        self.sources.append(source_ordinals + offsets[segment])
        self.rows.append(row)
        self.row_sample_ids.append(sample_id)

    def build(self, keys: tuple[SampleKey, ...]) -> PackedBatch:
        ordinals = torch.from_numpy(_concatenated(self.ordinals))
        sampled_counts = [row.num_sampled_tokens for row in self.rows]
        return PackedBatch(
            token_ids_T=torch.from_numpy(_concatenated(self.tokens)),
            ordinals_T=ordinals,
            rope_positions_T=ordinals.clone(),
            segments=tuple(self.segments),
            source_index_N=torch.from_numpy(_concatenated(self.sources)),
            target_ids_N=torch.from_numpy(_concatenated([row.token_ids[row.loss_mask] for row in self.rows])),
            sample_ids_N=torch.repeat_interleave(
                torch.tensor(self.row_sample_ids, dtype=torch.int64), torch.tensor(sampled_counts, dtype=torch.int64)
            ),
            sample_keys=keys,
            fields_N={
                spec.name: values for spec in ROW_FIELDS if (values := _target_field(spec, self.rows)) is not None
            },
        )


def _num_stored(row: Row) -> int:
    """A row's last token predicts nothing: it is not stored."""
    return row.num_tokens - 1


def _common_length(branch: _Branch) -> int:
    """How many stored tokens from `branch.depth` on all rows of the branch agree in."""
    first = branch.entries[0][0]
    length = _num_stored(first) - branch.depth
    for row, _ in branch.entries[1:]:
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
    values = [getattr(row, spec.name) for row in rows]
    missing = sum(value is None for value in values)
    if missing and not (spec.optional and missing == len(values)):
        raise ValueError(f"{spec.name} must be set on all rows of a batch or on none, got {missing} without")
    if missing:
        return None
    at_targets = [torch.from_numpy(value[row.loss_mask]) for value, row in zip(values, rows, strict=True)]
    return torch.cat([torch.empty(0, dtype=spec.dtype), *(part.to(spec.dtype) for part in at_targets)])
