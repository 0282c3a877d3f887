"""The packed batch: flat token tensors in a tree of segments, never a padded rectangle.

A row is a path from a root to a node. Tokens that several rows share from the start (the prompt of a
group) are stored and computed once:

    segment 0  [p0 p1 p2 p3]                 the prompt
    segment 1              [a0 a1 a2]        sample A, parent 0
    segment 2              [b0 b1]           sample B, parent 0

Segments lie in depth-first order, so the descendants of a segment are the tokens right behind it, up to
`subtree_stop`. What is predicted is said by explicit pairs: `source_index_N[n]` is the position in the
flat tensors whose hidden state predicts `target_ids_N[n]`. Nothing shifts by one: here p3 predicts both
a0 and b0. A row's last token predicts nothing and is not stored.
"""

from dataclasses import dataclass, field, replace

import torch


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens at `start` to `stop` (exclusive) that attend to themselves and their ancestors."""

    start: int
    stop: int
    parent: int | None
    """Index of the parent segment; None for a root."""
    subtree_stop: int
    """Where the descendants of this segment end: they are the tokens from `stop` to here."""

    @property
    def num_tokens(self) -> int:
        """The length of the segment."""
        return self.stop - self.start


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch: T tokens to run through the model, N predictions to learn from, S samples."""

    token_ids_T: torch.Tensor
    """[T] int64"""
    ordinals_T: torch.Tensor
    """[T] int64, place of the token in its own sequence; drives causal order and sliding windows."""
    rope_positions_T: torch.Tensor
    """[T] or [T, 3] int64; drives rotary embedding only."""
    segments: tuple[Segment, ...]
    source_index_N: torch.Tensor
    """[N] int64, position in the flat tensors whose hidden state predicts the target."""
    target_ids_N: torch.Tensor
    """[N] int64, the sampled tokens."""
    sample_ids_N: torch.Tensor
    """[N] int64 in [0, num_samples): which sample of this micro-batch the prediction belongs to."""
    sample_keys: tuple[tuple[int, int], ...]
    """(group, sample) index in the step's list of groups, for each of the S samples."""
    row_keys: tuple[tuple[int, int, int], ...] = ()
    """(group, sample, row) of each row, in the order in which their targets lie behind one another."""
    fields_N: dict[str, torch.Tensor] = field(default_factory=dict)
    """Target-aligned fields by name: see `records.schema`."""

    @property
    def num_tokens(self) -> int:
        """T, the tokens that are computed."""
        return len(self.token_ids_T)

    @property
    def num_targets(self) -> int:
        """N, the predictions that are learned from."""
        return len(self.target_ids_N)

    @property
    def num_samples(self) -> int:
        """S, the samples in this micro-batch."""
        return len(self.sample_keys)

    def with_fields(self, **fields_N: torch.Tensor) -> "PackedBatch":
        """Returns the batch with target-aligned fields added; each must have N entries."""
        for name, values in fields_N.items():
            if len(values) != self.num_targets:
                raise ValueError(f"{name} must have one entry a target ({self.num_targets}), got {len(values)}")
        return replace(self, fields_N={**self.fields_N, **fields_N})

    def to(self, device: torch.device) -> "PackedBatch":
        """Returns the batch on `device`; the layout stays on the host."""
        return replace(
            self,
            token_ids_T=self.token_ids_T.to(device),
            ordinals_T=self.ordinals_T.to(device),
            rope_positions_T=self.rope_positions_T.to(device),
            source_index_N=self.source_index_N.to(device),
            target_ids_N=self.target_ids_N.to(device),
            sample_ids_N=self.sample_ids_N.to(device),
            fields_N={name: values.to(device) for name, values in self.fields_N.items()},
        )
