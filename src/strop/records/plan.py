"""The plan of a mini-batch: what one optimizer update learns from, cut into micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from strop.records.packed import PackedBatch


@dataclass(frozen=True)
class MicroBatchPlan:
    """One mini-batch cut into micro-batches: what one optimizer update learns from.

    Denominators are fixed already: each micro-batch carries `weights` in `fields_N`, and the loss of the
    mini-batch is the plain sum over all targets of weight times loss, however it is cut.
    """

    micro_batches: tuple[PackedBatch, ...]
    ranks: tuple[int, ...] = ()
    """Which process computes each micro-batch, in ascending order; empty where one computes all."""

    @property
    def num_targets(self) -> int:
        """The predictions that bear loss, over all micro-batches."""
        return sum(batch.num_targets for batch in self.micro_batches)

    @property
    def num_tokens(self) -> int:
        """The tokens that are computed, over all micro-batches."""
        return sum(batch.num_tokens for batch in self.micro_batches)

    def with_field(self, name: str, values: Sequence[torch.Tensor]) -> "MicroBatchPlan":
        """Returns the plan with one more target-aligned field on every micro-batch, [N] or [N, K] each."""
        pairs = zip(self.micro_batches, values, strict=True)
        return replace(self, micro_batches=tuple(batch.with_fields(**{name: part}) for batch, part in pairs))

    def of_rank(self, rank: int) -> "MicroBatchPlan":
        """Returns what one process computes: its part of the results stands where `ranks` names it."""
        if not self.ranks:
            return self if rank == 0 else MicroBatchPlan(())
        pairs = zip(self.micro_batches, self.ranks, strict=True)
        return MicroBatchPlan(tuple(batch for batch, owner in pairs if owner == rank))
