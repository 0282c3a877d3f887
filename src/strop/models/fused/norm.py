"""RMS normalisation (Zhang and Sennrich, 2019, https://arxiv.org/abs/1910.07467) that keeps its input for the backward
pass and nothing else of its size."""

from typing import Any, cast

import torch
from torch import Tensor, nn


class FusedRMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * (offset + weight), in float32 or higher inside."""

    def __init__(self, weight: nn.Parameter, eps: float, offset: float) -> None:
        """Shares the [H] `weight`; `offset` is 1 in the families that store the distance from 1, else 0."""
        super().__init__()
        self.weight = weight
        self.eps = eps
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., H] in the dtype of x."""
        scale_H = self.weight if self.offset == 0 else self.weight + self.offset
        if not torch.is_grad_enabled():
            return _normalised(x, scale_H, self.eps)[0]
        return cast(Tensor, _RMSNorm.apply(x, scale_H, self.eps))  # type: ignore[no-untyped-call]


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale_H: Tensor, eps: float) -> Tensor:
        y, inverse_norm = _normalised(x, scale_H, eps)
        ctx.save_for_backward(x, scale_H, inverse_norm)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        x, scale_H, inverse_norm = ctx.saved_tensors
        grad_y, precise = grad_outputs[0].to(inverse_norm.dtype), x.to(inverse_norm.dtype)
        unit = precise * inverse_norm
        grad_scale_H = torch.linalg.vecdot(grad_y.flatten(0, -2), unit.flatten(0, -2), dim=0).to(scale_H.dtype)
        grad_x = grad_y * scale_H
        along = torch.linalg.vecdot(grad_x, unit).div_(-x.shape[-1]).unsqueeze(-1)
        grad_x.addcmul_(unit, along).mul_(inverse_norm)
        return grad_x.to(x.dtype), grad_scale_H, None


def _normalised(x: Tensor, scale_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Returns [..., H] and the [..., 1] inverse of the root mean square."""
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    inverse_norm = torch.linalg.vecdot(precise, precise).div_(x.shape[-1]).add_(eps).rsqrt_().unsqueeze(-1)
    return (precise * inverse_norm).mul_(scale_H).to(x.dtype), inverse_norm
