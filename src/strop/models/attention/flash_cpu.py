"""Tree attention on a CPU through torch's flash kernels, exact and without a mask.

Descendants of a node lie right behind it, so attention over a tree is a sum of rectangles:

    every node            causal, node x node                  nodes of one length class run as one batch
    every inner node      full, its descendants x node

Each rectangle gives an output and a log-sum-exp for its queries; two are merged by their log-sum-exps. The backward
pass runs each rectangle on its own with the output and log-sum-exp of the whole, which makes the probabilities those
of the whole (as in ring attention, Liu et al., 2023, https://arxiv.org/abs/2310.01889).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, cast

import torch

from strop.models.attention.interface import AttentionCall
from strop.models.attention.nodes import Node

SUPPORTED_DTYPES: Final = frozenset({torch.float32, torch.float64, torch.bfloat16})
SHORT_TOKENS: Final = 16
"""Nodes up to this length are batched together whatever their lengths: calls cost more than padding."""
MIN_FILL: Final = 0.75
"""Longer nodes are batched when the shortest has at least this share of the longest one's tokens."""
GATHERED_TOKENS: Final = 32
"""Nodes longer than this are batched only where they lie side by side: copying them costs more than a call."""

_forward_op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward_op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True)
class Gather:
    """How nodes of several lengths or places are brought together, N nodes of L tokens each with padding."""

    taken_NL: torch.Tensor
    """[N * L] flat token index, the node's last token where padded."""
    padding_NL: torch.Tensor
    """[N, L] bool, true where padded."""
    real_R: torch.Tensor
    """[R] places in N * L that are not padded."""
    tokens_R: torch.Tensor
    """[R] the flat token index of each."""


@dataclass(frozen=True, slots=True)
class CausalBatch:
    """Nodes that attend to themselves in one call, at a common length."""

    start: int
    num_nodes: int
    length: int
    gather: Gather | None
    """None where the nodes lie side by side from `start` and have one length: views do."""


@dataclass(frozen=True, slots=True)
class FlashPlan:
    """The rectangles of one tree."""

    causal: tuple[CausalBatch, ...]
    inner: tuple[tuple[int, int, int], ...]
    """(start, stop, subtree_stop) of every node with descendants."""


def make_flash_plan(nodes: Sequence[Node]) -> FlashPlan:
    """Returns the rectangles that cover what every token of the tree sees, each pair once."""
    short = sorted((node for node in nodes if node.num_tokens <= GATHERED_TOKENS), key=lambda node: node.num_tokens)
    long = [node for node in nodes if node.num_tokens > GATHERED_TOKENS]
    batches = [*_split(short, _of_similar_length), *_split(long, _side_by_side)]
    inner = tuple((node.start, node.stop, node.subtree_stop) for node in nodes if node.subtree_stop > node.stop)
    return FlashPlan(tuple(_causal_batch(batch) for batch in batches), inner)


def _split(nodes: Sequence[Node], fits: Callable[[list[Node], Node], bool]) -> list[list[Node]]:
    """Cuts a list wherever a node does not fit to those before it."""
    batches: list[list[Node]] = []
    for node in nodes:
        if batches and fits(batches[-1], node):
            batches[-1].append(node)
        else:
            batches.append([node])
    return batches


def _of_similar_length(batch: list[Node], node: Node) -> bool:
    return node.num_tokens <= max(SHORT_TOKENS, int(batch[0].num_tokens / MIN_FILL))


def _side_by_side(batch: list[Node], node: Node) -> bool:
    return batch[-1].stop == node.start and batch[-1].num_tokens == node.num_tokens


def _causal_batch(nodes: list[Node]) -> CausalBatch:
    start, length = nodes[0].start, nodes[-1].num_tokens
    is_view = all(_side_by_side([before], node) for before, node in pairwise(nodes))
    return CausalBatch(start, len(nodes), length, None if is_view else _gather(nodes, length))


def _gather(nodes: list[Node], length: int) -> Gather:
    starts_N = torch.tensor([node.start for node in nodes])
    lengths_N = torch.tensor([node.num_tokens for node in nodes])
    places_L = torch.arange(length)
    taken_NL = starts_N[:, None] + torch.minimum(places_L, lengths_N[:, None] - 1)
    padding_NL = places_L >= lengths_N[:, None]
    real_R = (~padding_NL).flatten().nonzero().flatten()
    return Gather(taken_NL.flatten(), padding_NL, real_R, taken_NL.flatten()[real_R])


def flash_can_attend(call: AttentionCall) -> bool:
    """Returns whether the kernels compute this call exactly; the caller rules out binding windows."""
    query, key, value = call.query, call.key, call.value
    return (
        query.device.type == "cpu"
        and query.dtype in SUPPORTED_DTYPES
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] == value.shape[-1]
        and call.softcap is None
        and call.sinks is None
    )


def attend_flash(call: AttentionCall, plan: FlashPlan) -> torch.Tensor:
    """Returns [1, T, H, D]."""
    return cast(torch.Tensor, _TreeAttention.apply(call.query, call.key, call.value, call.scaling, plan))  # type: ignore[no-untyped-call]


class _TreeAttention(torch.autograd.Function):
    """Takes query [1, H, T, D], key and value [1, K, T, D]; works on views [T, heads, D]."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, plan: FlashPlan
    ) -> torch.Tensor:
        q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        precision = torch.promote_types(q.dtype, torch.float32)
        out = torch.empty(q.shape, dtype=precision)
        lse = torch.empty(q.shape[:2], dtype=precision)
        for batch in plan.causal:
            part, part_lse = _forward_op(*(_take(batch, x) for x in (q, k, v)), 0.0, True, scale=scaling)
            _put(batch, out, part)
            _put(batch, lse, part_lse)
        for start, stop, subtree_stop in plan.inner:
            below = slice(stop, subtree_stop)
            keys, values = (_heads_first(x[start:stop]) for x in (k, v))
            part, part_lse = _forward_op(_heads_first(q[below]), keys, values, 0.0, False, scale=scaling)
            _merge_(out[below], lse[below], part[0].transpose(0, 1), part_lse[0].transpose(0, 1))
        out = out.to(q.dtype)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scaling, ctx.plan = scaling, plan
        return out.unsqueeze(0)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        grad_out = grad_outputs[0][0]
        grads = [torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v)]
        for batch in ctx.plan.causal:
            taken_grad = _take(batch, grad_out)
            if batch.gather is not None:
                taken_grad = taken_grad.masked_fill(batch.gather.padding_NL[:, None, :, None], 0)
            tensors = (taken_grad, *(_take(batch, x) for x in (q, k, v, out, lse)))
            for grad, part in zip(grads, _rectangle_gradients(tensors, True, ctx.scaling), strict=True):
                _put(batch, grad, part)
        for start, stop, subtree_stop in ctx.plan.inner:
            below, node = slice(stop, subtree_stop), slice(start, stop)
            views = ((grad_out, below), (q, below), (k, node), (v, node), (out, below), (lse, below))
            tensors = tuple(_heads_first(x[place]) for x, place in views)
            parts = _rectangle_gradients(tensors, False, ctx.scaling)
            for grad, part, place in zip(grads, parts, (below, node, node), strict=True):
                grad[place].add_(part[0].transpose(0, 1))
        grad_q, grad_k, grad_v = (grad.transpose(0, 1).unsqueeze(0) for grad in grads)
        return grad_q, grad_k, grad_v, None, None


def _merge_(out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor) -> None:
    """Merges a further rectangle, [Q, H, D] with [Q, H], into what the same queries saw before."""
    part_share = torch.sigmoid(part_lse - lse)
    out.lerp_(part.to(out.dtype), part_share.unsqueeze(-1))
    torch.logaddexp(lse, part_lse, out=lse)


def _rectangle_gradients(
    tensors: tuple[torch.Tensor, ...], is_causal: bool, scaling: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns gradients of query [N, H, Q, D], key and value [N, K, S, D].

    `tensors` are the gradient of the output, query, key, value, output and log-sum-exp, heads second.
    """
    grad_out, q, k, v, out, lse = tensors
    num_key_heads = k.shape[1]
    if len(q) > 1 or num_key_heads % torch.get_num_threads() == 0:
        return cast(
            tuple[torch.Tensor, torch.Tensor, torch.Tensor],
            _backward_op(grad_out, q, k, v, out, lse, 0.0, is_causal, scale=scaling),
        )
    # The kernel gives each key head to one thread. One entry a query head spreads evenly: key heads become the batch.
    group = q.shape[1] // num_key_heads
    grad_out, q, out, lse = (x[0].view(num_key_heads, group, *x.shape[2:]) for x in (grad_out, q, out, lse))
    k, v = (x[0].unsqueeze(1).expand(-1, group, -1, -1) for x in (k, v))
    grad_q, grad_k, grad_v = _backward_op(grad_out, q, k, v, out, lse, 0.0, is_causal, scale=scaling)
    return grad_q.flatten(0, 1).unsqueeze(0), grad_k.sum(1).unsqueeze(0), grad_v.sum(1).unsqueeze(0)


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    """Turns [Q, heads, ...] into a view [1, heads, Q, ...]."""
    return x.transpose(0, 1).unsqueeze(0)


def _take(batch: CausalBatch, x: torch.Tensor) -> torch.Tensor:
    """Turns [T, heads, ...] into [N, heads, L, ...]."""
    if batch.gather is None:
        taken = x[batch.start : batch.start + batch.num_nodes * batch.length]
    else:
        taken = x.index_select(0, batch.gather.taken_NL)
    return taken.view(batch.num_nodes, batch.length, *x.shape[1:]).transpose(1, 2)


def _put(batch: CausalBatch, x: torch.Tensor, part: torch.Tensor) -> None:
    """Writes [N, heads, L, ...] to the batch's tokens of [T, heads, ...], padding left out."""
    part_NL = part.transpose(1, 2)
    if batch.gather is None:
        x[batch.start : batch.start + batch.num_nodes * batch.length].view(part_NL.shape).copy_(part_NL)
    else:
        real = part_NL.flatten(0, 1).index_select(0, batch.gather.real_R)
        x.index_copy_(0, batch.gather.tokens_R, real.to(x.dtype))
