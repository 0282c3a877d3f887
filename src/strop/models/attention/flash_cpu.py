"""Tree attention on a CPU through torch's flash kernels, exact for full and sliding-window attention.

Each rectangle of the plan gives an output and a log-sum-exp for its queries; two are merged by their log-sum-exps. The
backward pass runs each rectangle on its own with the output and log-sum-exp of the whole, which makes the probabilities
those of the whole (as in ring attention, Liu et al., 2023, https://arxiv.org/abs/2310.01889).
"""

from typing import Any, Final, cast

import torch

from strop.models.attention.flash_plan import CausalBatch, FlashPlan, InnerRectangle
from strop.models.attention.interface import AttentionCall

SUPPORTED_DTYPES: Final = frozenset({torch.float32, torch.float64, torch.bfloat16})
_forward_op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward_op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def flash_can_attend(call: AttentionCall) -> bool:
    """Returns whether the kernels compute this call exactly."""
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
            views = (_take(batch, x) for x in (q, k, v))
            is_causal = batch.mask_LL is None
            part, part_lse = _forward_op(*views, 0.0, is_causal, attn_mask=batch.mask_LL, scale=scaling)
            _put(batch, out, part)
            _put(batch, lse, part_lse)
        for inner in plan.inner:
            below, node = slice(inner.stop, inner.subtree_stop), slice(inner.start, inner.stop)
            views = (_heads_first(x) for x in (q[below], k[node], v[node]))
            part, part_lse = _forward_op(*views, 0.0, False, attn_mask=inner.mask_QS, scale=scaling)
            _merge_(out[below], lse[below], part[0].transpose(0, 1), _seen_lse(part_lse[0].transpose(0, 1), inner))
        output = out.to(q.dtype).unsqueeze(0)
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.scaling, ctx.plan = scaling, plan
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        out, grad_out = output[0], grad_outputs[0][0]
        grads = [torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v)]
        for batch in ctx.plan.causal:
            taken_grad = _take(batch, grad_out)
            if batch.gather is not None:
                taken_grad = taken_grad.masked_fill(batch.gather.padding_NL[:, None, :, None], 0)
            tensors = (taken_grad, *(_take(batch, x) for x in (q, k, v, out, lse)))
            for grad, part in zip(grads, _rectangle_gradients(tensors, True, batch.mask_LL, ctx.scaling), strict=True):
                _put(batch, grad, part)
        for inner in ctx.plan.inner:
            below, node = slice(inner.stop, inner.subtree_stop), slice(inner.start, inner.stop)
            views = ((grad_out, below), (q, below), (k, node), (v, node), (out, below), (lse, below))
            tensors = tuple(_heads_first(x[place]) for x, place in views)
            parts = _rectangle_gradients(tensors, False, inner.mask_QS, ctx.scaling)
            for grad, part, place in zip(grads, parts, (below, node, node), strict=True):
                grad[place].add_(part[0].transpose(0, 1))
        grad_q, grad_k, grad_v = (grad.transpose(0, 1).unsqueeze(0) for grad in grads)
        return grad_q, grad_k, grad_v, None, None


def _merge_(out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor) -> None:
    """Merges a further rectangle, [Q, H, D] with [Q, H], into what the same queries saw before."""
    part_share = torch.sigmoid(part_lse - lse)
    out.lerp_(part.to(out.dtype), part_share.unsqueeze(-1))
    torch.logaddexp(lse, part_lse, out=lse)


def _seen_lse(part_lse: torch.Tensor, inner: InnerRectangle) -> torch.Tensor:
    """Gives queries that see no key of the rectangle a log-sum-exp of -inf; the kernel says 0."""
    return part_lse if inner.blind_Q is None else part_lse.masked_fill(inner.blind_Q[:, None], float("-inf"))


def _rectangle_gradients(
    tensors: tuple[torch.Tensor, ...], is_causal: bool, mask: torch.Tensor | None, scaling: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns gradients of query [N, H, Q, D], key and value [N, K, S, D].

    `tensors` are the gradient of the output, query, key, value, output and log-sum-exp, heads second.
    """
    grad_out, q, k, v, out, lse = tensors
    options = {"attn_mask": mask, "scale": scaling}
    is_causal = is_causal and mask is None
    num_key_heads = k.shape[1]
    if len(q) > 1 or num_key_heads % torch.get_num_threads() == 0:
        return cast(
            tuple[torch.Tensor, torch.Tensor, torch.Tensor],
            _backward_op(grad_out, q, k, v, out, lse, 0.0, is_causal, **options),
        )
    # The kernel gives each key head to one thread. One entry a query head spreads evenly: key heads become the batch.
    group = q.shape[1] // num_key_heads
    grad_out, q, out, lse = (x[0].view(num_key_heads, group, *x.shape[2:]) for x in (grad_out, q, out, lse))
    k, v = (x[0].unsqueeze(1).expand(-1, group, -1, -1) for x in (k, v))
    grad_q, grad_k, grad_v = _backward_op(grad_out, q, k, v, out, lse, 0.0, is_causal, **options)
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
