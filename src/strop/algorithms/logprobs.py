"""Log-probs of chosen tokens from hidden states, without ever holding the logits of all targets.

    hidden [N, H] --chunk--> logits [C, V] --> log-prob and entropy of each target, log-normaliser; logits dropped
    backward:     --chunk--> logits again  --> their gradient, in place --> grad of hidden, weight, bias

The forward pass keeps hidden states, targets and one log-normaliser (and entropy) a target; the backward
pass computes the logits of a chunk again and turns them in place into their own gradient. With logits z,
probabilities p, target t, entropy h, and incoming gradients g of log p_t and e of h:

    d/dz_v = g * [v = t] - p_v * (g + e * (log p_v + h))

Where a loss's gradient is known before its log-probs are, one pass does both: `_score_and_differentiate`.
A vocabulary-sharded form replaces `_row_maximum_and_sum` and the pick of the target by reductions over shards.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strop.algorithms.head_products import Head, HeadGradients, LogitTransform


def chunked_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    target_ids_N: Tensor,
    *,
    transform: LogitTransform,
    chunk: int,
    with_entropy: bool = False,
    known_gradient_N: Tensor | None = None,
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
        known_gradient_N: [N] the gradient that will come in by each log-prob, where that is certain before they are
            there: on the first on-policy update the ratio is 1, and a token-level loss has the gradient
            -weight * advantage. It saves one of four matrix products; the backward pass raises RuntimeError where
            another gradient arrives. Excludes entropies.

    Returns:
        ([N], [N] or None), float32, or float64 where the hidden states are; both differentiable.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if with_entropy and known_gradient_N is not None:
        raise ValueError("entropies must not be wanted where the gradient is known: their gradient is not")
    outputs: tuple[Tensor, Tensor | None] = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, bias_V, target_ids_N, known_gradient_N, _Settings(transform, chunk, with_entropy)
    )
    return outputs


class _Settings(NamedTuple):
    transform: LogitTransform
    chunk: int
    with_entropy: bool

    def head(self, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None) -> Head:
        """The head for chunks of these hidden states."""
        dtype = torch.promote_types(hidden_NH.dtype, torch.float32)
        return Head(weight_VH, bias_V, self.transform, dtype, min(self.chunk, len(hidden_NH)))

    def chunks(self, hidden_NH: Tensor) -> list[slice]:
        """The rows of each chunk."""
        num_targets = len(hidden_NH)
        return [slice(start, min(start + self.chunk, num_targets)) for start in range(0, num_targets, self.chunk)]


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_ids_N: Tensor,
        known_gradient_N: Tensor | None,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.settings, ctx.is_done = settings, known_gradient_N is not None
        head = settings.head(hidden_NH, weight_VH, bias_V)
        if known_gradient_N is None:
            logprobs_N, entropies_N, log_normalisers_N = _score(head, hidden_NH, target_ids_N, settings)
            ctx.save_for_backward(hidden_NH, weight_VH, bias_V, target_ids_N, log_normalisers_N, entropies_N)
            return logprobs_N, entropies_N
        gradients = HeadGradients(hidden_NH, head, ctx.needs_input_grad[:3])
        known_gradient_N = known_gradient_N.to(head.dtype)
        logprobs_N = _score_and_differentiate(gradients, hidden_NH, target_ids_N, known_gradient_N, settings)
        ctx.save_for_backward(known_gradient_N, gradients.hidden_NH, gradients.weight(), gradients.bias_V)
        return logprobs_N, None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logprob_grads_N: Tensor, entropy_grads_N: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.is_done:
            known_gradient_N, *grads = ctx.saved_tensors
            _check_known_gradient(logprob_grads_N, known_gradient_N)
            return (*grads, None, None, None)
        hidden_NH, weight_VH, bias_V, target_ids_N, log_normalisers_N, entropies_N = ctx.saved_tensors
        head = ctx.settings.head(hidden_NH, weight_VH, bias_V)
        gradients = HeadGradients(hidden_NH, head, ctx.needs_input_grad[:3])
        for rows in ctx.settings.chunks(hidden_NH):
            logits, slope = head.logits(hidden_NH[rows])
            log_probabilities = logits.sub_(log_normalisers_N[rows, None])
            grads = logprob_grads_N[rows, None]
            if entropies_N is None or entropy_grads_N is None:
                logit_grads = log_probabilities.exp_().mul_(-grads)
            else:
                logit_grads = _joint_gradient(log_probabilities, grads, entropies_N[rows], entropy_grads_N[rows])
            logit_grads.scatter_add_(1, target_ids_N[rows, None], grads)
            gradients.add(rows, hidden_NH[rows], logit_grads, slope)
        return gradients.hidden_NH, gradients.weight(), gradients.bias_V, None, None, None


def _score(
    head: Head, hidden_NH: Tensor, target_ids_N: Tensor, settings: _Settings
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Returns log-probs, entropies where wanted, and log-normalisers, each [N]."""
    log_normalisers_N = hidden_NH.new_empty(len(hidden_NH), dtype=head.dtype)
    logprobs_N = torch.empty_like(log_normalisers_N)
    entropies_N = torch.empty_like(log_normalisers_N) if settings.with_entropy else None
    for rows in settings.chunks(hidden_NH):
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
    return logprobs_N, entropies_N, log_normalisers_N


def _score_and_differentiate(
    gradients: HeadGradients, hidden_NH: Tensor, target_ids_N: Tensor, known_gradient_N: Tensor, settings: _Settings
) -> Tensor:
    """Returns log-probs [N] and fills the gradients that the known one gives, from the same logits."""
    logprobs_N = torch.empty_like(known_gradient_N)
    for rows in settings.chunks(hidden_NH):
        logits, slope = gradients.head.logits(hidden_NH[rows])
        targets, grads = target_ids_N[rows, None], known_gradient_N[rows, None]
        target_logits = logits.gather(1, targets)
        maximum, total = _row_maximum_and_sum(logits)
        logprobs_N[rows] = (target_logits - maximum - total.log()).squeeze(1)
        logit_grads = logits.mul_(-grads / total).scatter_add_(1, targets, grads)
        gradients.add(rows, hidden_NH[rows], logit_grads, slope)
    return logprobs_N


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


def _joint_gradient(
    log_probabilities_CV: Tensor, grads_C1: Tensor, entropies_C: Tensor, entropy_grads_C: Tensor
) -> Tensor:
    """Returns -p * (g + e * (log p + h)) [C, V], destroying the log-probabilities."""
    entropy_grads_C1 = entropy_grads_C[:, None]
    probabilities = log_probabilities_CV.exp()
    factors = log_probabilities_CV.mul_(entropy_grads_C1).add_(grads_C1 + entropy_grads_C1 * entropies_C[:, None])
    return probabilities.mul_(factors).neg_()


def _check_known_gradient(arrived_N: Tensor, known_N: Tensor) -> None:
    if not torch.allclose(arrived_N, known_N, rtol=1e-5, atol=0, equal_nan=True):
        raise RuntimeError(
            "the gradient of the log-probs must be the one that was announced; the largest difference is "
            f"{float((arrived_N - known_N).abs().max())}. Leave known_gradient_N out for this loss"
        )
