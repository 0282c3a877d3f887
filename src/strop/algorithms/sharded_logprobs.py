"""Log-probs at given ids where each process holds the logits of a part of the vocabulary only.

    logits [N, W] of ids first_id ... first_id + W - 1, on every process
      maximum [N, 1], logits at the ids in this shard and -inf at the others [N, K] --largest of all shards-->
      exponentials of logits - maximum, summed [N, 1] --total of all shards--> log-normaliser
    backward, without talking: d/dz_v = sum_k g_k * [v = c_k] - p_v * sum_k g_k, for the v of this shard

Two reductions, of [N, 1 + K] and [N, 1] numbers; no process sees the logits of another. Megatron-LM (Shoeybi et al.,
2019, arXiv 1909.08053, section 3) fuses the cross-entropy of one target with a sharded head for the same reason.

Every process gets the same log-probs, works out the same loss of them, and so brings the same gradient g: the
gradient of its own logits is then whole as it is, and nothing is added up over processes.
"""

from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


class OverShards(Protocol):
    """Brings together what each shard of the vocabulary found; the result has the shape of a part."""

    def largest(self, part: Tensor) -> Tensor:
        """The elementwise maximum over all shards."""

    def total(self, part: Tensor) -> Tensor:
        """The elementwise sum over all shards."""


class OverProcesses(NamedTuple):
    """A shard on each process of a group; implements `OverShards`."""

    group: dist.ProcessGroup | None = None
    """None is the group of all processes."""

    def largest(self, part: Tensor) -> Tensor:
        """The maximum over the group; all its processes must call this."""
        return self._reduced(part, dist.ReduceOp.MAX)

    def total(self, part: Tensor) -> Tensor:
        """The sum over the group; all its processes must call this."""
        return self._reduced(part, dist.ReduceOp.SUM)

    def _reduced(self, part: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        whole = part.clone()
        dist.all_reduce(whole, operation, self.group)
        return whole


def sharded_logprobs(logits_NW: Tensor, ids_NK: Tensor, first_id: int | Tensor, shards: OverShards) -> Tensor:
    """Computes log-probs at given ids of the whole vocabulary, differentiable in this shard's logits.

    Args:
        logits_NW: [N, W] this shard's logits; shards may differ in W. A padded column holds -inf. Where one tensor
            holds all shards, they lie along leading dimensions: [R, N, W].
        ids_NK: [N, K] int64, the same for every shard; an id may occur more than once. Column 0 may be the target.
        first_id: the id of the shard's first logit; with leading dimensions a tensor [R, 1, 1].
        shards: how the shards come together.

    Returns:
        [N, K], the same for every shard; in the dtype of the logits, float32 at least; -inf at an id that no shard
        holds.
    """
    logprobs_NK: Tensor = _ShardedLogprobs.apply(logits_NW, ids_NK, first_id, shards)  # type: ignore[no-untyped-call]
    return logprobs_NK


class _ShardedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NW: Tensor, ids_NK: Tensor, first_id: int | Tensor, shards: OverShards) -> Tensor:
        logits = logits_NW.to(torch.promote_types(logits_NW.dtype, torch.float32))
        columns, is_here = _columns(ids_NK, first_id, logits)
        found = logits.gather(-1, columns).where(is_here, -torch.inf)
        largest = shards.largest(torch.cat([logits.amax(dim=-1, keepdim=True), found], dim=-1))
        maximum, picked = largest[..., :1], largest[..., 1:]
        exponentials = (logits - maximum).exp_()
        total = shards.total(exponentials.sum(dim=-1, keepdim=True))
        probabilities = exponentials.div_(total)
        ctx.save_for_backward(probabilities, columns, is_here)
        ctx.dtype = logits_NW.dtype
        return picked - maximum - total.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads_NK: Tensor) -> tuple[Tensor | None, ...]:
        probabilities, columns, is_here = ctx.saved_tensors
        logit_grads = probabilities * -grads_NK.sum(dim=-1, keepdim=True)
        logit_grads.scatter_add_(-1, columns, torch.where(is_here, grads_NK, 0.0))
        return logit_grads.to(ctx.dtype), None, None, None


def _columns(ids_NK: Tensor, first_id: int | Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns where each id lies in the shard, 0 where elsewhere, and whether it lies there; both [..., N, K]."""
    width = logits.shape[-1]
    columns = (ids_NK - first_id).expand(*logits.shape[:-1], ids_NK.shape[-1])
    is_here = (columns >= 0) & (columns < width)
    return columns.where(is_here, 0), is_here
