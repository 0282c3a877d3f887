"""Log-probs of chosen tokens from hidden states, without ever holding the logits of all targets.

    hidden [N, H] --chunk--> logits [C, V] --> log-prob and entropy of each target, log-normaliser; logits dropped
    backward:     --chunk--> logits again  --> their gradient, in place --> grad of hidden, weight, bias

The forward pass keeps hidden states, targets and one log-normaliser (and entropy) a target; the backward
pass computes the logits of a chunk again and turns them in place into their own gradient. With logits z,
probabilities p, target t, entropy h, and incoming gradients g of log p_t and e of h:

    d/dz_v = g * [v = t] - p_v * (g + e * (log p_v + h))

Where a loss's gradient is known before its log-probs are (`logprobs_with_known_gradient`), one pass does both.
All arithmetic is in float32 at least; matrix products of bfloat16 inputs accumulate and return float32.
A vocabulary-sharded form replaces `_row_maximum_and_sum` and the pick of the target by reductions over shards.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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


def chunked_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    target_ids_N: Tensor,
    *,
    transform: LogitTransform,
    chunk: int,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Computes the log-prob of each target, and the entropy of its distribution where wanted.

    Args:
        hidden_NH: [N, H] the hidden state that predicts each target.
        weight_VH: [V, H] the language-model head.
        bias_V: [V] or None.
        target_ids_N: [N] int64 in [0, V).
        transform: what happens to a logit before the softmax.
        chunk: how many targets have logits at the same time.
        with_entropy: also returns entropies, in nats; one more buffer of [chunk, V].

    Returns:
        ([N], [N] or None), float32, or float64 where the hidden states are; both differentiable.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    outputs: tuple[Tensor, Tensor | None] = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, bias_V, target_ids_N, transform, chunk, with_entropy
    )
    return outputs


def logprobs_with_known_gradient(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    target_ids_N: Tensor,
    gradient_N: Tensor,
    *,
    transform: LogitTransform,
    chunk: int,
) -> Tensor:
    """Computes log-probs [N] whose incoming gradient will be `gradient_N`, one matrix product cheaper.

    On the first on-policy update the ratio is 1 and a token-level loss has the gradient -weight * advantage
    whatever the log-probs are, so that the logits need not be computed again in the backward pass.

    Raises:
        RuntimeError: in the backward pass, where the gradient that arrives is another one.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    logprobs: Tensor = _KnownGradientLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, bias_V, target_ids_N, gradient_N, transform, chunk
    )
    return logprobs


def _compute_dtype(hidden: Tensor) -> torch.dtype:
    return torch.promote_types(hidden.dtype, torch.float32)


class _Head:
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


def _row_maximum_and_sum(logits_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Shifts each row by its maximum and exponentiates it in place; returns both [C, 1] statistics."""
    maximum = logits_CV.amax(dim=1, keepdim=True)
    total = logits_CV.sub_(maximum).exp_().sum(dim=1, keepdim=True)
    return maximum, total


def _entropy(logits_CV: Tensor, log_normaliser_C1: Tensor) -> Tensor:
    """Computes the entropy [C] of softmax(logits), destroying the logits."""
    log_probabilities = logits_CV.sub_(log_normaliser_C1)
    negative: Tensor = torch.linalg.vecdot(log_probabilities.exp(), log_probabilities)
    return negative.neg_()


class _Gradients:
    """The gradients of the head's operands, one buffer each, filled chunk by chunk."""

    def __init__(self, hidden_NH: Tensor, head: _Head, needs: tuple[bool, bool, bool]) -> None:
        self.head = head
        needs_hidden, needs_weight, needs_bias = needs
        self.hidden_NH = torch.empty_like(hidden_NH) if needs_hidden else None
        self.needs_weight = needs_weight
        self.weight_VH: Tensor | None = None
        self.bias_V = torch.zeros_like(head.bias_V) if needs_bias and head.bias_V is not None else None

    def add(self, rows: slice, hidden_CH: Tensor, logit_gradient_CV: Tensor) -> None:
        """Adds what a chunk gives; `logit_gradient_CV` is by the product of hidden state and weight."""
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


def _chunks(num_targets: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, num_targets)) for start in range(0, num_targets, chunk)]


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_ids_N: Tensor,
        transform: LogitTransform,
        chunk: int,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor | None]:
        head = _Head(weight_VH, bias_V, transform, _compute_dtype(hidden_NH), min(chunk, len(hidden_NH)))
        log_normalisers_N = hidden_NH.new_empty(len(hidden_NH), dtype=head.dtype)
        logprobs_N = torch.empty_like(log_normalisers_N)
        entropies_N = torch.empty_like(log_normalisers_N) if with_entropy else None
        for rows in _chunks(len(hidden_NH), chunk):
            logits, _ = head.logits(hidden_NH[rows])
            target_logits = logits.gather(1, target_ids_N[rows, None])
            if entropies_N is None:
                maximum, total = _row_maximum_and_sum(logits)
                log_normaliser = maximum + total.log()
            else:
                log_normaliser = torch.logsumexp(logits, dim=1, keepdim=True)
                entropies_N[rows] = _entropy(logits, log_normaliser)
            log_normalisers_N[rows] = log_normaliser.squeeze(1)
            logprobs_N[rows] = (target_logits - log_normaliser).squeeze(1)
        ctx.transform, ctx.chunk = transform, chunk
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, target_ids_N, log_normalisers_N, entropies_N)
        return logprobs_N, entropies_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logprob_grads_N: Tensor, entropy_grads_N: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, target_ids_N, log_normalisers_N, entropies_N = ctx.saved_tensors
        head = _Head(weight_VH, bias_V, ctx.transform, log_normalisers_N.dtype, min(ctx.chunk, len(hidden_NH)))
        gradients = _Gradients(hidden_NH, head, ctx.needs_input_grad[:3])
        for rows in _chunks(len(hidden_NH), ctx.chunk):
            logits, slope = head.logits(hidden_NH[rows])
            log_probabilities = logits.sub_(log_normalisers_N[rows, None])
            grads = logprob_grads_N[rows, None]
            if entropies_N is None or entropy_grads_N is None:
                logit_grads = log_probabilities.exp_().mul_(-grads)
            else:
                logit_grads = _joint_gradient(log_probabilities, grads, entropies_N[rows], entropy_grads_N[rows])
            logit_grads.scatter_add_(1, target_ids_N[rows, None], grads)
            _through_transform_(logit_grads, slope, ctx.transform)
            gradients.add(rows, hidden_NH[rows], logit_grads)
        weight_grad = gradients.weight()
        return gradients.hidden_NH, weight_grad, gradients.bias_V, None, None, None, None


def _joint_gradient(
    log_probabilities_CV: Tensor, grads_C1: Tensor, entropies_C: Tensor, entropy_grads_C: Tensor
) -> Tensor:
    """Returns -p * (g + e * (log p + h)) [C, V], destroying the log-probabilities."""
    entropy_grads_C1 = entropy_grads_C[:, None]
    probabilities = log_probabilities_CV.exp()
    factors = log_probabilities_CV.mul_(entropy_grads_C1).add_(grads_C1 + entropy_grads_C1 * entropies_C[:, None])
    return probabilities.mul_(factors).neg_()


def _through_transform_(logit_grads_CV: Tensor, slope_CV: Tensor | None, transform: LogitTransform) -> None:
    if slope_CV is not None:
        logit_grads_CV.mul_(slope_CV)
    _scale_(logit_grads_CV, transform.factor)


class _KnownGradientLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_ids_N: Tensor,
        gradient_N: Tensor,
        transform: LogitTransform,
        chunk: int,
    ) -> Tensor:
        head = _Head(weight_VH, bias_V, transform, _compute_dtype(hidden_NH), min(chunk, len(hidden_NH)))
        gradients = _Gradients(hidden_NH, head, ctx.needs_input_grad[:3])
        logprobs_N = hidden_NH.new_empty(len(hidden_NH), dtype=head.dtype)
        gradient_N = gradient_N.to(head.dtype)
        for rows in _chunks(len(hidden_NH), chunk):
            logits, slope = head.logits(hidden_NH[rows])
            targets, grads = target_ids_N[rows, None], gradient_N[rows, None]
            target_logits = logits.gather(1, targets)
            maximum, total = _row_maximum_and_sum(logits)
            logprobs_N[rows] = (target_logits - maximum - total.log()).squeeze(1)
            logit_grads = logits.mul_(-grads / total).scatter_add_(1, targets, grads)
            _through_transform_(logit_grads, slope, transform)
            gradients.add(rows, hidden_NH[rows], logit_grads)
        weight_grad = gradients.weight()
        ctx.save_for_backward(gradient_N, gradients.hidden_NH, weight_grad, gradients.bias_V)
        return logprobs_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logprob_grads_N: Tensor) -> tuple[Tensor | None, ...]:
        gradient_N, hidden_grads, weight_grad, bias_grad = ctx.saved_tensors
        if not torch.allclose(logprob_grads_N, gradient_N, rtol=1e-5, atol=0, equal_nan=True):
            raise RuntimeError(
                "the gradient of the log-probs must be the one that was announced; the largest difference is "
                f"{float((logprob_grads_N - gradient_N).abs().max())}. Use chunked_logprobs for this loss"
            )
        return hidden_grads, weight_grad, bias_grad, None, None, None, None
