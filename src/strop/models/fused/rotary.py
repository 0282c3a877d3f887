"""Rotary position embedding (Su et al., 2021, https://arxiv.org/abs/2104.09864) in three passes each way, and without
the zero-filled gradients of slices."""

from typing import Any, cast

import torch
from torch import Tensor


def rotate(x_TND: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
    """Returns [T, N, D]: the halves of each head's D turned against each other by the angles of its position."""
    if not torch.is_grad_enabled():
        return _turned(x_TND, cos_T1D, sin_T1D)
    return cast(Tensor, _Rotate.apply(x_TND, cos_T1D, sin_T1D))  # type: ignore[no-untyped-call]


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TND: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
        ctx.save_for_backward(cos_T1D, sin_T1D)
        return _turned(x_TND, cos_T1D, sin_T1D)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        cos_T1D, sin_T1D = ctx.saved_tensors
        grad_TND = grad_outputs[0]
        half = grad_TND.shape[-1] // 2
        result = grad_TND * cos_T1D
        result[..., :half].addcmul_(grad_TND[..., half:], sin_T1D[..., half:])
        result[..., half:].addcmul_(grad_TND[..., :half], sin_T1D[..., :half], value=-1)
        return result, None, None


def _turned(x_TND: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
    half = x_TND.shape[-1] // 2
    result = x_TND * cos_T1D
    result[..., :half].addcmul_(x_TND[..., half:], sin_T1D[..., :half], value=-1)
    result[..., half:].addcmul_(x_TND[..., :half], sin_T1D[..., half:])
    return result
