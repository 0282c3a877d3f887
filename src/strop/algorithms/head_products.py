"""The matrix products of a language-model head over one chunk of targets, forward and backward.

    hidden [C, H] --Head.logits--> logits [C, V]      logit gradient [C, V] --HeadGradients.add--> hidden, weight, bias

All arithmetic is in float32 at least; matrix products of bfloat16 inputs accumulate and return float32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LogitTransform:
    """How the product of hidden state and weight becomes a logit: softcap(scale * (h W^T + b)) / temperature."""

    temperature: float
    scale: float = 1.0
    softcap: float | None = None

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        if self.softcap is not None and not self.softcap > 0:
            raise ValueError(f"softcap must be positive or None, got {self.softcap}")

    @property
    def factor(self) -> float:
        """The constant part of the derivative of a logit by the product."""
        return self.scale / self.temperature


class Head:
    """The head's operands in the types that its matrix products take on this device, and one buffer of logits."""

    def __init__(
        self, weight_VH: Tensor, bias_V: Tensor | None, transform: LogitTransform, dtype: torch.dtype, num_rows: int
    ) -> None:
        self.transform = transform
        self.dtype = dtype
        # Fresh memory for every chunk would cost as much time in page faults as the product itself.
        self.buffer_CV = weight_VH.new_empty(num_rows, len(weight_VH), dtype=dtype)
        # A CPU has no product of bfloat16 matrices that returns float32, and its bfloat16 products are slow.
        self.operand_dtype = dtype if weight_VH.device.type == "cpu" else weight_VH.dtype
        self.weight_dtype = weight_VH.dtype
        self.weight_VH = weight_VH.to(self.operand_dtype)
        self.bias_V = None if bias_V is None else bias_V.to(dtype)

    def logits(self, hidden_CH: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns [C, V] logits in the buffer, and the derivative of the soft cap where there is one."""
        logits = self.buffer_CV[: len(hidden_CH)]
        _product_into(logits, hidden_CH.to(self.operand_dtype), self.weight_VH.t())
        if self.bias_V is not None:
            logits += self.bias_V
        softcap = self.transform.softcap
        if softcap is None:
            return _scale_(logits, self.transform.factor), None
        logits.mul_(self.transform.scale / softcap).tanh_()
        slope = logits.square().neg_().add_(1)
        return logits.mul_(softcap / self.transform.temperature), slope

    def hidden_gradient(self, logit_gradient_CV: Tensor) -> Tensor:
        """Returns [C, H]."""
        return torch.mm(logit_gradient_CV.to(self.operand_dtype), self.weight_VH)


def _product_into(out: Tensor, left: Tensor, right: Tensor) -> None:
    if left.dtype == out.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(torch.mm(left, right, out_dtype=out.dtype))


def _scale_(values: Tensor, factor: float) -> Tensor:
    return values if factor == 1.0 else values.mul_(factor)


class HeadGradients:
    """The gradients of the head's operands, one buffer each, filled chunk by chunk."""

    def __init__(self, hidden_NH: Tensor, head: Head, needs: tuple[bool, bool, bool]) -> None:
        self.head = head
        needs_hidden, needs_weight, needs_bias = needs
        self.hidden_NH = torch.empty_like(hidden_NH) if needs_hidden else None
        self.needs_weight = needs_weight
        self.weight_VH: Tensor | None = None
        self.bias_V = torch.zeros_like(head.bias_V) if needs_bias and head.bias_V is not None else None

    def add(self, rows: slice, hidden_CH: Tensor, logit_gradient_CV: Tensor, slope_CV: Tensor | None) -> None:
        """Adds what a chunk gives, destroying its logit gradient.

        Args:
            rows: where the chunk stands.
            hidden_CH: its hidden states.
            logit_gradient_CV: the gradient by its logits.
            slope_CV: what `Head.logits` returned beside them.
        """
        if slope_CV is not None:
            logit_gradient_CV.mul_(slope_CV)
        _scale_(logit_gradient_CV, self.head.transform.factor)
        if self.hidden_NH is not None:
            self.hidden_NH[rows] = self.head.hidden_gradient(logit_gradient_CV)
        if self.needs_weight:
            self._add_weight(hidden_CH, logit_gradient_CV)
        if self.bias_V is not None:
            self.bias_V += logit_gradient_CV.sum(dim=0)

    def _add_weight(self, hidden_CH: Tensor, logit_gradient_CV: Tensor) -> None:
        operand_dtype = self.head.operand_dtype
        left, right = logit_gradient_CV.to(operand_dtype).t(), hidden_CH.to(operand_dtype)
        if operand_dtype != self.head.dtype:
            product = torch.mm(left, right, out_dtype=self.head.dtype)
            self.weight_VH = product if self.weight_VH is None else self.weight_VH.add_(product)
        elif self.weight_VH is None:
            self.weight_VH = torch.mm(left, right)
        else:
            self.weight_VH.addmm_(left, right)

    def weight(self) -> Tensor | None:
        """Returns the gradient [V, H] of the weight, zeros where there was no chunk, None where unwanted."""
        if not self.needs_weight:
            return None
        gradient_VH = torch.zeros_like(self.head.weight_VH) if self.weight_VH is None else self.weight_VH
        return gradient_VH.to(self.head.weight_dtype)
