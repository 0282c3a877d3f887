"""Draws tokens by inverse CDF, with the log-probs of exactly the distribution that was drawn from.

One uniform number a row decides its token; rows never influence each other. The CDF is walked in two levels: sums of
blocks of the vocabulary, then the tokens of the one block that was hit, so that the whole vocabulary is passed over
once and only sums of blocks are accumulated, in float64.
"""

from dataclasses import dataclass
from typing import Final

import torch

from strop.records import SamplingParams

BLOCK_TOKENS: Final = 256
CANDIDATE_TOKENS: Final = 512
"""Top-k and top-p look among so many likeliest tokens first, and sort the whole vocabulary only where needed."""


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """The sampling settings of B rows."""

    temperatures_B: torch.Tensor
    """[B] float32; 0 is greedy."""
    top_ks_B: torch.Tensor
    """[B] int64; 0 is off."""
    top_ps_B: torch.Tensor
    """[B] float64; 1 is off."""
    has_greedy: bool
    has_temperature: bool
    has_filter: bool

    @classmethod
    def from_params(cls, params: list[SamplingParams], device: torch.device) -> "SamplingTensors":
        """Gathers the settings of each row's request."""
        return cls(
            torch.tensor([one.temperature for one in params], dtype=torch.float32, device=device),
            torch.tensor([one.top_k for one in params], device=device),
            torch.tensor([one.top_p for one in params], dtype=torch.float64, device=device),
            has_greedy=any(one.temperature == 0 for one in params),
            has_temperature=any(one.temperature not in (0, 1) for one in params),
            has_filter=any(one.temperature > 0 and (one.top_k > 0 or one.top_p < 1) for one in params),
        )


@dataclass(frozen=True, slots=True)
class Draw:
    """One token a row."""

    token_ids_B: torch.Tensor
    """[B] int64"""
    logprobs_B: torch.Tensor
    """[B] float32, log-prob of the token after temperature, top-k and top-p; of greedy rows at temperature 1."""
    invalid_B: torch.Tensor
    """[B] bool, true where the logits had no finite maximum (NaN, infinity): the other fields mean nothing there."""


def draw(logits_BV: torch.Tensor, settings: SamplingTensors, uniforms_B: torch.Tensor) -> Draw:
    """Draws a token a row from [B, V] logits of any float type; `uniforms_B` [B] float64 in [0, 1)."""
    logits_BV = logits_BV.float()
    peaks_B1 = logits_BV.amax(dim=-1, keepdim=True)
    invalid_B = ~torch.isfinite(peaks_B1[:, 0])
    if invalid_B.any():
        logits_BV = logits_BV.masked_fill(invalid_B[:, None], 0.0)
        peaks_B1 = peaks_B1.masked_fill(invalid_B[:, None], 0.0)
    shifted_BV = logits_BV - peaks_B1
    if settings.has_temperature:
        temperatures_B = torch.where(settings.temperatures_B == 0, 1.0, settings.temperatures_B)
        shifted_BV = shifted_BV.div_(temperatures_B[:, None])
    if settings.has_filter:
        shifted_BV = _filtered(shifted_BV, settings)
    token_ids_B, logprobs_B = _inverse_cdf(shifted_BV, uniforms_B, settings)
    return Draw(token_ids_B, logprobs_B, invalid_B)


def keep_likeliest(logits_RV: torch.Tensor, top_ks_R: torch.Tensor, top_ps_R: torch.Tensor) -> torch.Tensor:
    """Returns [R, V] logits with -inf for all but the top-k tokens, and of those all but the nucleus.

    The nucleus holds the likeliest tokens up to and including the one that brings their share of the top-k mass to
    top_p (Holtzman et al., 2020). Among equal logits the lower token id goes first. The maximum of each row must be 0.
    """
    num_tokens = logits_RV.shape[1]
    kept_RV, is_settled_R = _keep_among(logits_RV, top_ks_R, top_ps_R, min(CANDIDATE_TOKENS, num_tokens))
    if not is_settled_R.all():
        rows = (~is_settled_R).nonzero()[:, 0]
        kept_RV[rows], _ = _keep_among(logits_RV[rows], top_ks_R[rows], top_ps_R[rows], num_tokens)
    return kept_RV


def _keep_among(
    logits_RV: torch.Tensor, top_ks_R: torch.Tensor, top_ps_R: torch.Tensor, num_candidates: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the kept logits as found among the likeliest tokens alone, and [R] whether the rest cannot matter.

    It cannot where the last token kept is likelier than the last candidate: no tie and no tail is left out.
    """
    num_tokens = logits_RV.shape[1]
    values_RC, ids_RC = _ordered_candidates(logits_RV, num_candidates)
    ranks_C = torch.arange(num_candidates, device=logits_RV.device)
    keep_RC = ranks_C < torch.where(top_ks_R > 0, top_ks_R, num_tokens)[:, None]
    masses_RC = values_RC.double().exp()
    totals_R = torch.where(
        top_ks_R > 0, (masses_RC * keep_RC).sum(dim=-1), logits_RV.exp().sum(-1, dtype=torch.float64)
    )
    bounds_R = torch.where(top_ps_R < 1, top_ps_R, float("inf")) * totals_R
    keep_RC &= (masses_RC.cumsum(dim=-1) - masses_RC < bounds_R[:, None]) | (ranks_C == 0)
    last_kept_R = values_RC.masked_fill(~keep_RC, float("inf")).amin(dim=-1)
    kept_RV = torch.full_like(logits_RV, float("-inf"))
    kept_RV.scatter_(1, ids_RC, values_RC.masked_fill(~keep_RC, float("-inf")))
    return kept_RV, (last_kept_R > values_RC[:, -1]) & (top_ks_R <= num_candidates)


def _ordered_candidates(logits_RV: torch.Tensor, num_candidates: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns [R, C] largest logits and their ids, in falling order, among equals by id."""
    if num_candidates == logits_RV.shape[1]:
        return logits_RV.sort(dim=-1, descending=True, stable=True)
    ids_RC = logits_RV.topk(num_candidates, dim=-1, sorted=False).indices.sort(dim=-1).values
    values_RC, order_RC = logits_RV.gather(1, ids_RC).sort(dim=-1, descending=True, stable=True)
    return values_RC, ids_RC.gather(1, order_RC)


def _filtered(logits_BV: torch.Tensor, settings: SamplingTensors) -> torch.Tensor:
    wanted_B = (settings.top_ks_B > 0) | (settings.top_ps_B < 1)
    rows_R = (wanted_B & (settings.temperatures_B > 0)).nonzero()[:, 0]
    kept_RV = keep_likeliest(logits_BV[rows_R], settings.top_ks_B[rows_R], settings.top_ps_B[rows_R])
    return logits_BV.index_copy(0, rows_R, kept_RV)


def _inverse_cdf(
    shifted_BV: torch.Tensor, uniforms_B: torch.Tensor, settings: SamplingTensors
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns [B] tokens and [B] float32 log-probs for logits whose maximum is 0."""
    masses_BV = shifted_BV.exp()
    edges_BN = _block_sums(masses_BV).double().cumsum(dim=-1)
    totals_B = edges_BN[:, -1]
    targets_B = uniforms_B * totals_B
    blocks_B = _first_above(edges_BN, targets_B)
    inner_BN = _block(masses_BV, blocks_B).double().cumsum(dim=-1)
    before_B = torch.where(blocks_B > 0, edges_BN.gather(1, (blocks_B[:, None] - 1).clamp(min=0))[:, 0], 0.0)
    token_ids_B = blocks_B * BLOCK_TOKENS + _first_above(inner_BN, targets_B - before_B)
    if settings.has_greedy:
        greedy_B = settings.temperatures_B == 0
        token_ids_B = torch.where(greedy_B, shifted_BV.argmax(dim=-1), token_ids_B)
    logprobs_B = shifted_BV.gather(1, token_ids_B[:, None])[:, 0].double() - totals_B.log()
    return token_ids_B, logprobs_B.float()


def _block_sums(masses_BV: torch.Tensor) -> torch.Tensor:
    """Returns [B, N] sums over blocks of the vocabulary, the last one maybe shorter."""
    num_rows, num_tokens = masses_BV.shape
    num_whole = num_tokens // BLOCK_TOKENS
    whole = masses_BV[:, : num_whole * BLOCK_TOKENS].view(num_rows, num_whole, BLOCK_TOKENS).sum(dim=-1)
    if num_whole * BLOCK_TOKENS == num_tokens:
        return whole
    return torch.cat([whole, masses_BV[:, num_whole * BLOCK_TOKENS :].sum(dim=-1, keepdim=True)], dim=1)


def _block(masses_BV: torch.Tensor, blocks_B: torch.Tensor) -> torch.Tensor:
    """Returns [B, BLOCK_TOKENS] masses of one block a row, 0 behind the end of the vocabulary."""
    places_BN = blocks_B[:, None] * BLOCK_TOKENS + torch.arange(BLOCK_TOKENS, device=masses_BV.device)
    last = masses_BV.shape[1] - 1
    return masses_BV.gather(1, places_BN.clamp(max=last)).masked_fill(places_BN > last, 0.0)


def _first_above(edges_BN: torch.Tensor, targets_B: torch.Tensor) -> torch.Tensor:
    """Returns [B] the first place whose running sum exceeds the target.

    Where rounding lifts a target to the whole sum or above it, that is the last place with any mass: a place without
    mass never raises the running sum and is never chosen.
    """
    places_B = torch.searchsorted(edges_BN, targets_B[:, None], right=True)[:, 0]
    last_massive_B = torch.searchsorted(edges_BN, edges_BN[:, -1:].contiguous(), right=False)[:, 0]
    return torch.minimum(places_B, last_massive_B)
