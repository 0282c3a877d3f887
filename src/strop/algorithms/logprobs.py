"""Log-probs of chosen tokens from hidden states, without ever holding the logits of all targets.

    hidden [N, H] --chunk--> logits [C, V] --> what is wanted of each target, log-normaliser; logits dropped
    backward:     --chunk--> logits again  --> their gradient, in place --> grad of hidden, weight, bias

The forward pass keeps hidden states, ids and one log-normaliser (and entropy) a target; the backward
pass computes the logits of a chunk again and turns them in place into their own gradient. With logits z,
probabilities p, target t, candidates c_k, entropy h, and incoming gradients g of log p_t, g_k of log p_{c_k}, e of h:

    d/dz_v = g * [v = t] + sum_k g_k * [v = c_k] - p_v * (g + sum_k g_k + e * (log p_v + h))

Where a loss's gradient is known before its log-probs are, one pass does both: `_score_and_differentiate`.
`sharded_logprobs.py` has the form for a vocabulary that lies in shards.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strop.algorithms.head_products import Head, HeadGradients, LogitTransform


class Wanted(NamedTuple):
    """What is computed of each target beside its log-prob."""

    entropy: bool = False
    """The entropy of its distribution, with gradient; one more buffer of [chunk, V]."""
    candidate_ids_NK: Tensor | None = None
    """[N, K] int64 in [0, V): log-probs at these ids, with gradient."""
    top_k: int = 0
    """The so many most likely tokens at its place, without gradient."""
    collisions: bool = False
    """The sum of the squared probabilities at its place, without gradient."""
    known_gradient_N: Tensor | None = None
    """[N] the gradient that will come in by each log-prob, where that is certain before they are there: on the first
    on-policy update the ratio is 1, and a token-level loss has the gradient -weight * advantage. It saves one of four
    matrix products; the backward pass raises RuntimeError where another gradient arrives. Excludes all others."""


class TargetScores(NamedTuple):
    """What was computed of each target; log-probs and entropies in nats, float32, or float64 where the inputs are."""

    logprobs_N: Tensor
    entropies_N: Tensor | None = None
    candidate_logprobs_NK: Tensor | None = None
    top_ids_NK: Tensor | None = None
    """Most likely first, int64."""
    top_logprobs_NK: Tensor | None = None
    collisions_N: Tensor | None = None


def chunked_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    target_ids_N: Tensor,
    *,
    transform: LogitTransform,
    chunk: int,
    wanted: Wanted | None = None,
) -> TargetScores:
    """Computes the log-prob of each target, and what else is wanted of its distribution.

    Args:
        hidden_NH: [N, H] the hidden state that predicts each target.
        weight_VH: [V, H] the language-model head.
        bias_V: [V] or None.
        target_ids_N: [N] int64 in [0, V).
        transform: what happens to a logit before the softmax.
        chunk: how many targets have logits at the same time.
        wanted: what is computed beside the log-probs; nothing where it is left out.

    Returns:
        What was wanted, and None for the rest; log-probs, entropies and candidates are differentiable.
    """
    wanted = wanted or Wanted()
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    _check_wanted(wanted, len(hidden_NH), len(weight_VH))
    settings = _Settings(transform, chunk, wanted.entropy, wanted.top_k, wanted.collisions)
    outputs = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, bias_V, target_ids_N, wanted.candidate_ids_NK, wanted.known_gradient_N, settings
    )
    return TargetScores(*outputs)


def _check_wanted(wanted: Wanted, num_targets: int, vocabulary_size: int) -> None:
    ids = wanted.candidate_ids_NK
    has_others = wanted.entropy or ids is not None or wanted.top_k > 0 or wanted.collisions
    if wanted.known_gradient_N is not None and has_others:
        raise ValueError(
            "nothing beside log-probs must be wanted where the gradient is known: theirs is not. "
            "Leave known_gradient_N out"
        )
    if not 0 <= wanted.top_k <= vocabulary_size:
        raise ValueError(f"top_k must be from 0 to the {vocabulary_size} tokens of the vocabulary, got {wanted.top_k}")
    if ids is not None and (ids.ndim != 2 or len(ids) != num_targets):
        raise ValueError(f"candidate_ids_NK must be [{num_targets}, K], a row a target, got {list(ids.shape)}")


class _Settings(NamedTuple):
    transform: LogitTransform
    chunk: int
    with_entropy: bool
    top_k: int
    with_collisions: bool

    def head(self, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None) -> Head:
        """The head for chunks of these hidden states."""
        dtype = torch.promote_types(hidden_NH.dtype, torch.float32)
        return Head(weight_VH, bias_V, self.transform, dtype, min(self.chunk, len(hidden_NH)))

    def chunks(self, hidden_NH: Tensor) -> list[slice]:
        """The rows of each chunk."""
        num_targets = len(hidden_NH)
        return [slice(start, min(start + self.chunk, num_targets)) for start in range(0, num_targets, self.chunk)]

    def empty_scores(self, num_targets: int, num_candidates: int | None, like: Tensor) -> TargetScores:
        """Memory for what is wanted of so many targets."""
        top = (num_targets, self.top_k)
        return TargetScores(
            logprobs_N=like.new_empty(num_targets),
            entropies_N=like.new_empty(num_targets) if self.with_entropy else None,
            candidate_logprobs_NK=None if num_candidates is None else like.new_empty(num_targets, num_candidates),
            top_ids_NK=like.new_empty(top, dtype=torch.int64) if self.top_k else None,
            top_logprobs_NK=like.new_empty(top) if self.top_k else None,
            collisions_N=like.new_empty(num_targets) if self.with_collisions else None,
        )


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_ids_N: Tensor,
        candidate_ids_NK: Tensor | None,
        known_gradient_N: Tensor | None,
        settings: _Settings,
    ) -> tuple[Tensor | None, ...]:
        ctx.settings, ctx.is_done = settings, known_gradient_N is not None
        head = settings.head(hidden_NH, weight_VH, bias_V)
        if known_gradient_N is None:
            ids = (target_ids_N, candidate_ids_NK)
            scores, log_normalisers_N = _score(head, hidden_NH, *ids, settings)
            ctx.save_for_backward(hidden_NH, weight_VH, bias_V, *ids, log_normalisers_N, scores.entropies_N)
            fixed = (scores.top_ids_NK, scores.top_logprobs_NK, scores.collisions_N)
            ctx.mark_non_differentiable(*[values for values in fixed if values is not None])
            return tuple(scores)
        gradients = HeadGradients(hidden_NH, head, ctx.needs_input_grad[:3])
        known_gradient_N = known_gradient_N.to(head.dtype)
        logprobs_N = _score_and_differentiate(gradients, hidden_NH, target_ids_N, known_gradient_N, settings)
        ctx.save_for_backward(known_gradient_N, gradients.hidden_NH, gradients.weight(), gradients.bias_V)
        return tuple(TargetScores(logprobs_N))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        logprob_grads_N: Tensor,
        entropy_grads_N: Tensor | None,
        candidate_grads_NK: Tensor | None,
        *_: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        if ctx.is_done:
            known_gradient_N, *grads = ctx.saved_tensors
            _check_known_gradient(logprob_grads_N, known_gradient_N)
            return (*grads, None, None, None, None)
        hidden_NH, weight_VH, bias_V, target_ids_N, candidate_ids_NK, log_normalisers_N, entropies_N = ctx.saved_tensors
        head = ctx.settings.head(hidden_NH, weight_VH, bias_V)
        gradients = HeadGradients(hidden_NH, head, ctx.needs_input_grad[:3])
        sums_N = logprob_grads_N if candidate_grads_NK is None else logprob_grads_N + candidate_grads_NK.sum(dim=1)
        for rows in ctx.settings.chunks(hidden_NH):
            logits, slope = head.logits(hidden_NH[rows])
            log_probabilities = logits.sub_(log_normalisers_N[rows, None])
            if entropies_N is None or entropy_grads_N is None:
                logit_grads = log_probabilities.exp_().mul_(-sums_N[rows, None])
            else:
                entropy_part = (entropies_N[rows], entropy_grads_N[rows])
                logit_grads = _joint_gradient(log_probabilities, sums_N[rows, None], *entropy_part)
            logit_grads.scatter_add_(1, target_ids_N[rows, None], logprob_grads_N[rows, None])
            if candidate_ids_NK is not None and candidate_grads_NK is not None:
                logit_grads.scatter_add_(1, candidate_ids_NK[rows], candidate_grads_NK[rows])
            gradients.add(rows, hidden_NH[rows], logit_grads, slope)
        return gradients.hidden_NH, gradients.weight(), gradients.bias_V, None, None, None, None


def _score(
    head: Head, hidden_NH: Tensor, target_ids_N: Tensor, candidate_ids_NK: Tensor | None, settings: _Settings
) -> tuple[TargetScores, Tensor]:
    """Returns what is wanted, and log-normalisers [N]."""
    log_normalisers_N = hidden_NH.new_empty(len(hidden_NH), dtype=head.dtype)
    num_candidates = None if candidate_ids_NK is None else candidate_ids_NK.shape[1]
    scores = settings.empty_scores(len(hidden_NH), num_candidates, log_normalisers_N)
    for rows in settings.chunks(hidden_NH):
        logits, _ = head.logits(hidden_NH[rows])
        scores.logprobs_N[rows] = logits.gather(1, target_ids_N[rows, None]).squeeze(1)
        if scores.candidate_logprobs_NK is not None and candidate_ids_NK is not None:
            scores.candidate_logprobs_NK[rows] = logits.gather(1, candidate_ids_NK[rows])
        if scores.top_logprobs_NK is not None and scores.top_ids_NK is not None:
            scores.top_logprobs_NK[rows], scores.top_ids_NK[rows] = logits.topk(settings.top_k, dim=1)
        log_normalisers_N[rows] = _take_statistics(scores, rows, logits)
    scores.logprobs_N.sub_(log_normalisers_N)
    for logits_NK in (scores.candidate_logprobs_NK, scores.top_logprobs_NK):
        if logits_NK is not None:
            logits_NK.sub_(log_normalisers_N[:, None])
    return scores, log_normalisers_N


def _take_statistics(scores: TargetScores, rows: slice, logits_CV: Tensor) -> Tensor:
    """Fills in a chunk's entropies and collisions where they are wanted, destroying its logits.

    Returns:
        Its log-normalisers [C].
    """
    if scores.entropies_N is None:
        maximum, total = _row_maximum_and_sum(logits_CV)
        exponentials = logits_CV
    else:
        maximum = logits_CV.amax(dim=1, keepdim=True)
        exponentials = logits_CV.sub_(maximum).exp()
        total = exponentials.sum(dim=1, keepdim=True)
        mean_shifted_logits = torch.linalg.vecdot(exponentials, logits_CV) / total.squeeze(1)
        scores.entropies_N[rows] = total.squeeze(1).log() - mean_shifted_logits
    if scores.collisions_N is not None:
        scores.collisions_N[rows] = torch.linalg.vecdot(exponentials, exponentials) / total.squeeze(1).square()
    return (maximum + total.log()).squeeze(1)


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
