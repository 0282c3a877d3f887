"""Passes of a policy without gradient: old log-probs, a frozen reference, the probe of the weight-sync proof."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from strop.algorithms.logprobs import TargetScores, Wanted
from strop.protocols import Device, Scores
from strop.records import MicroBatchPlan, PackedBatch, Segment
from strop.training.fsdp2.policy import PolicyModule
from strop.training.fsdp2.sharding import num_processes


class PolicyScorer:
    """Scores packed batches and plain sequences with a policy that it does not own."""

    def __init__(self, policy: PolicyModule, device: Device, temperature: float) -> None:
        self.policy = policy
        self.device = device
        self.temperature = temperature

    def score(self, plan: MicroBatchPlan, *, top_k: int = 0, collisions: bool = False) -> list[Scores]:
        """Scores the targets at the rollout temperature: one record on the CPU a micro-batch."""
        wanted = Wanted(top_k=top_k, collisions=collisions)
        batches = in_step(plan.micro_batches, self.device, shares_prefixes=self.policy.shares_prefixes)
        scored = [self._scores(batch, self.temperature, wanted) for batch in batches]
        return scored[: len(plan.micro_batches)]

    def score_tokens(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Returns what `Scorer.score` does: log-probs at temperature 1 of tokens 1, 2, ... of each sequence."""
        return [self._scores(_plain_batch(ids), 1.0, Wanted()).logprobs_N.float().numpy() for ids in token_ids]

    @torch.no_grad()
    def _scores(self, batch: PackedBatch, temperature: float, wanted: Wanted) -> Scores:
        outputs: TargetScores = self.policy(batch.to(self.device.torch_device), temperature, wanted)
        return Scores(
            logprobs_N=outputs.logprobs_N.cpu(),
            top_ids_NK=_on_cpu(outputs.top_ids_NK),
            top_logprobs_NK=_on_cpu(outputs.top_logprobs_NK),
            collisions_N=_on_cpu(outputs.collisions_N),
        )


def _on_cpu(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.cpu()


def in_step(micro_batches: Sequence[PackedBatch], device: Device, *, shares_prefixes: bool) -> list[PackedBatch]:
    """Returns the micro-batches, filled up with idle ones to as many as any process has.

    Every forward and backward of a sharded model is a collective: all processes must do equally many. Where every
    row is computed alone, the decoder runs once a row: micro-batches at the same place get equally many rows.
    """
    if num_processes() == 1:
        return list(micro_batches)
    most = int(_most([len(micro_batches)], device)[0])
    batches = [*micro_batches, *[_idle_batch()] * (most - len(micro_batches))]
    if shares_prefixes or not batches:
        return batches
    rows = _most([len(batch.segments) for batch in batches], device)
    return [_with_idle_rows(batch, count) for batch, count in zip(batches, rows.tolist(), strict=True)]


def _most(counts: Sequence[int], device: Device) -> Tensor:
    """Returns the highest of each count over all processes, [len(counts)]."""
    most = torch.tensor(counts, device=device.torch_device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most


def _with_idle_rows(batch: PackedBatch, num_rows: int) -> PackedBatch:
    """Adds rows of one token that predict nothing; their gradient is 0."""
    missing = num_rows - len(batch.segments)
    starts = range(batch.num_tokens, batch.num_tokens + missing)
    return replace(
        batch,
        token_ids_T=_longer(batch.token_ids_T, missing),
        ordinals_T=_longer(batch.ordinals_T, missing),
        rope_positions_T=_longer(batch.rope_positions_T, missing),
        segments=(*batch.segments, *(Segment(start, start + 1, None, start + 1) for start in starts)),
    )


def _longer(values: Tensor, count: int) -> Tensor:
    return torch.cat([values, values.new_zeros(count, *values.shape[1:])])


def _plain_batch(token_ids: NDArray[np.int64]) -> PackedBatch:
    """A single sequence, whose every token but the first is a target."""
    tokens = torch.from_numpy(np.asarray(token_ids, dtype=np.int64))
    num_stored = len(tokens) - 1
    if num_stored < 1:
        raise ValueError(f"a scored sequence must have at least 2 tokens, got {len(tokens)}")
    positions = torch.arange(num_stored)
    return PackedBatch(
        token_ids_T=tokens[:-1],
        ordinals_T=positions,
        rope_positions_T=positions.clone(),
        segments=(Segment(0, num_stored, None, num_stored),),
        source_index_N=positions.clone(),
        target_ids_N=tokens[1:],
        sample_ids_N=torch.zeros(num_stored, dtype=torch.int64),
        sample_keys=((0, 0),),
    )


def _idle_batch() -> PackedBatch:
    """One token and no target: takes part in collectives and adds nothing."""
    zero, empty = torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    return PackedBatch(zero, zero.clone(), zero.clone(), (Segment(0, 1, None, 1),), empty, empty, empty, ())
