"""The canary: a perturbation of every weight that is sent and taken back; who does not follow takes no weights."""

from collections.abc import Mapping

import numpy as np

from strop.errors import SyncError
from strop.weight_sync.probe import SamplerReading

CANARY_CACHE_SHARE = 0.01
"""Under the canary, a cached and an uncached log-prob may lie apart by this share of the movement that it causes:
rounding is far below, keys and values from other weights are far above."""

CANARY_SLACK = 5.0
"""Or by so many times the bound, where that is more."""


def canary_scale(bound: float) -> float:
    """Returns what every weight is multiplied by for a moment.

    Visible against the bound, yet small: far from its weights a model amplifies rounding (at 1.25, cached and
    uncached log-probs of a 135M model in float32 are 1e-3 apart).
    """
    return 1 + min(0.1, 200 * bound)


def require_moved(before: Mapping[str, SamplerReading], after: Mapping[str, SamplerReading], bound: float) -> None:
    """Raises SyncError naming a replica that did not follow the canary, or not with its caches; `bound` in nats."""
    for name in before:
        whole, cached = _movements(before[name], after[name])
        visible = bound / 2
        if not (whole > visible and cached > visible):
            raise SyncError(
                f"{name} did not follow the canary: its log-probs must move by more than {visible:.3g} when every "
                f"weight is scaled, got {whole:.3g} scored and {cached:.3g} generated",
                "The sampler ignores new weights.",
            )
        staleness = abs(after[name].next_logprob - after[name].next_logprob_uncached)
        if not staleness <= max(CANARY_SLACK * bound, CANARY_CACHE_SHARE * whole):
            raise SyncError(
                f"{name} followed the canary only in part: a token must have one log-prob with and without cache, "
                f"got a difference of {staleness:.3g} where the canary moved log-probs by up to {whole:.3g}",
                "The sampler keeps keys and values that older weights computed.",
            )


def require_moved_back(before: Mapping[str, SamplerReading], after: Mapping[str, SamplerReading], bound: float) -> None:
    """Raises SyncError naming a replica that is not back where it was.

    Another next token than before is compared with the trainer's log-prob by the proof.
    """
    for name in before:
        whole, cached = _movements(before[name], after[name])
        is_other_token = after[name].next_token_id != before[name].next_token_id
        if not (whole <= bound and (cached <= bound or is_other_token)):
            raise SyncError(
                f"{name} did not come back from the canary: its log-probs must be what they were, got a "
                f"difference of {whole:.3g} scored and {cached:.3g} generated",
                "Part of the sampler's weights or caches was not replaced.",
            )


def _movements(before: SamplerReading, after: SamplerReading) -> tuple[float, float]:
    """Returns by how much readings (a) and (b) moved, in nats; another next token counts as infinitely far."""
    whole = np.abs(after.logprobs_N - before.logprobs_N)
    is_same_token = after.next_token_id == before.next_token_id
    cached = abs(after.next_logprob - before.next_logprob) if is_same_token else np.inf
    return float(np.where(np.isfinite(whole), whole, np.inf).max()), float(cached) if cached == cached else np.inf
