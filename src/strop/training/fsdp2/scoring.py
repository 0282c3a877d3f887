"""Passes of a policy without gradient: old log-probs, a frozen reference, the probe of the weight-sync proof."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from strop.algorithms.logprobs import TargetScores, Wanted
from strop.protocols import Device, MicroBatchPlan, Scores
from strop.records import PackedBatch, Segment
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
        scored = [self._scores(batch, self.temperature, wanted) for batch in in_step(plan.micro_batches, self.device)]
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


def in_step(micro_batches: Sequence[PackedBatch], device: Device) -> list[PackedBatch]:
    """Returns the micro-batches, filled up with idle ones to as many as any process has.

    Every forward and backward of a sharded model is a collective: all processes must do equally many.
    """
    if num_processes() == 1:
        return list(micro_batches)
    most = torch.tensor(len(micro_batches), device=device.torch_device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return [*micro_batches, *[_idle_batch()] * (int(most) - len(micro_batches))]


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
