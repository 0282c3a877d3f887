r"""Clip-Cov and KL-Cov: restrain the tokens that take entropy away (Cui et al. 2025, arXiv:2505.22617, section 4).

    cov_t = (A_t - mean A) (log p(t) - mean log p)

    Clip-Cov  a share of all tokens, drawn at random among those with low < cov_t < high, loses its gradient;
              the others have PPO's clipped loss
    KL-Cov    the share of largest cov_t has the loss -w_t A_t + beta |log p_new(t) - log p_old(t)|,
              the others have -w_t A_t

Defaults: Clip-Cov a share of 2e-4 and bounds 1 and 5, KL-Cov a share of 2e-3 and beta 1, as in the authors' runs with a
7B model (verl's share for KL-Cov is 2e-4). At least one token is treated, where there is one to treat. As in the
authors' code and verl, |.| stands for the KL, and tokens that PPO's clip already holds are not drawn.

Deviations: means, shares and draws are over the whole mini-batch, where the authors' code and verl take each
micro-batch for itself; log-probs are those of the policy right before the update; the draw depends on the mini-batch
alone, so that any cut into micro-batches, and a run that goes on from a checkpoint, draws the same. Tokens of weight 0
count nowhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.algorithms.losses.clip import clip_loss
from strop.algorithms.losses.kernel import MAX_LOG_RATIO, Terms, TokenLosses, held
from strop.config.bundles import ResolvedAlgorithm
from strop.records import MicroBatchPlan, PackedBatch


def clip_cov_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the clipped loss of each token, 0 where it was chosen."""
    found = clip_loss(terms, settings)
    return found._replace(losses_N=found.losses_N * (1 - _chosen(terms)))


def kl_cov_loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
    """Returns the unclipped loss of each token, with a penalty on its log-ratio where it was chosen."""
    gap_N = (terms.new_logprobs_N - terms.base_logprobs_N).abs()
    return TokenLosses(-terms.ratio_N * terms.advantages_N + settings.penalty * gap_N * _chosen(terms))


def _chosen(terms: Terms) -> Tensor:
    if "chosen" not in terms.inputs.fields_N:
        raise ValueError("the batch must carry the field chosen, got none: call choose_tokens on the mini-batch first")
    return terms.inputs.fields_N["chosen"]


def choose_tokens(plan: MicroBatchPlan, settings: ResolvedAlgorithm) -> MicroBatchPlan:
    """Returns the plan with the field `chosen`, [N] float: 1 at the tokens that the loss is to restrain.

    Args:
        plan: its batches carry `advantages`, `weights`, and `current_logprobs` or `old_logprobs` (whichever is missing
            is taken to equal the other; with two policies `rollout_logprobs` are the old ones).
        settings: `loss` says by which rule.
    """
    tokens = _gathered(plan.micro_batches, settings)
    chosen = np.zeros(len(tokens.advantages), np.float32)
    chosen[_choice(tokens, settings)] = 1
    parts = torch.split(torch.from_numpy(chosen), [batch.num_targets for batch in plan.micro_batches])
    devices = [batch.token_ids_T.device for batch in plan.micro_batches]
    return plan.with_field("chosen", [part.to(device) for part, device in zip(parts, devices, strict=True)])


class _Tokens(NamedTuple):
    """All targets of a mini-batch, micro-batch behind micro-batch."""

    advantages: NDArray[np.float64]
    logprobs: NDArray[np.float64]
    draws: NDArray[np.uint64]
    """A random number each, of the token's place alone."""
    bears_loss: NDArray[np.bool_]
    is_held: NDArray[np.bool_]
    """Whether PPO's clip takes the gradient away already."""


def _choice(tokens: _Tokens, settings: ResolvedAlgorithm) -> NDArray[np.int64]:
    """The indices of the chosen tokens, found in an order that no cut into micro-batches changes."""
    order: NDArray[np.int64] = np.lexsort((tokens.logprobs, tokens.advantages, tokens.draws))
    order = order[tokens.bears_loss[order]]
    if not len(order):
        return order
    advantages, logprobs = tokens.advantages[order], tokens.logprobs[order]
    covariances = (advantages - advantages.mean()) * (logprobs - logprobs.mean())
    count = max(1, int(settings.covariance_share * len(order)))
    if settings.loss == "kl_cov":
        picked = order[np.argsort(-covariances, kind="stable")]
    else:
        is_between = (covariances > settings.covariance_low) & (covariances < settings.covariance_high)
        picked = order[is_between & ~tokens.is_held[order]]
    return picked[:count]


def _gathered(batches: Sequence[PackedBatch], settings: ResolvedAlgorithm) -> _Tokens:
    pairs = [_logprobs(batch, settings) for batch in batches]
    advantages = _joined([batch.fields_N["advantages"] for batch in batches])
    current = _joined([current_N for current_N, _ in pairs])
    places = np.concatenate([np.zeros(0, np.uint64), *(_places(batch) for batch in batches)])
    return _Tokens(
        advantages.numpy(),
        current.numpy(),
        _mixed(places ^ _mixed(places.sum(keepdims=True))),
        (_joined([batch.fields_N["weights"] for batch in batches]) != 0).numpy(),
        _is_held(current - _joined([old_N for _, old_N in pairs]), advantages, settings),
    )


def _logprobs(batch: PackedBatch, settings: ResolvedAlgorithm) -> tuple[Tensor, Tensor]:
    """Log-probs of the policy now, and of the one that the loss compares it with."""
    old_name = "rollout_logprobs" if settings.correction.policies == 2 else "old_logprobs"
    known = [batch.fields_N[name] for name in ("current_logprobs", old_name) if name in batch.fields_N]
    if not known:
        raise ValueError(f"the batch must carry current_logprobs or {old_name}, got {sorted(batch.fields_N)}")
    return known[0], known[-1]


def _is_held(log_ratios: Tensor, advantages: Tensor, settings: ResolvedAlgorithm) -> NDArray[np.bool_]:
    ratios = log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    below, above = held(ratios, advantages, 1 - settings.clip_low, 1 + settings.clip_high)
    return (below | above).numpy()


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.float64), *(part.detach().cpu().double() for part in parts)])


def _places(batch: PackedBatch) -> NDArray[np.uint64]:
    """A number for each target from its group, sample, place in its row and token id: the same in any batch."""
    keys_S = torch.tensor(batch.sample_keys, dtype=torch.int64).reshape(-1, 2)
    groups_N, samples_N = keys_S[batch.sample_ids_N.cpu()].unbind(1)
    ordinals_N = batch.ordinals_T[batch.source_index_N].cpu()
    places = np.zeros(batch.num_targets, np.uint64)
    for part_N in (groups_N, samples_N, ordinals_N, batch.target_ids_N.cpu()):
        places = _mixed(places ^ part_N.numpy().astype(np.uint64))
    return places


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes 64-bit numbers one by one: the finalizer of SplitMix64 (Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
