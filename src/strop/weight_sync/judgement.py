"""What the numbers of a probe prove: pure functions.

p are the trainer's log-probs of the probe's tokens and s a sampler's, both raw at temperature 1, at two versions
of the weights: `now`, and `before`, which is the last version that was proven.

Two questions are asked. Is the largest |s - p| within an absolute bound? And how much of the trainer's movement
p_now - p_before did the sampler follow? The answer to the second is the tracked share

    <s_now - s_before, p_now - p_before> / |p_now - p_before|^2

which is 1 for a fresh sampler and 0 for a stale one. At a tiny learning rate a stale sampler passes any absolute
bound; the share shows it as soon as the movement is above the noise of rounding. Below that nothing can be told,
and the verdict says so.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

NOISE_MARGIN = 8.0
"""The movement must be so many times the noise of a difference of two readings, so that rounding alone moves the
share by at most 1/8, half of what is tolerated."""

SHARE_TOLERANCE = 0.25
"""The share may be so far from 1."""


class Verdict(StrEnum):
    """What a reading says of a replica."""

    PROVEN = "proven"
    INDISTINGUISHABLE = "indistinguishable"
    """Within the absolute bound, but the weights moved too little to tell fresh from stale."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Pair:
    """Log-probs of the same N tokens from sampler and trainer at one version."""

    sampler_N: NDArray[np.float64]
    trainer_N: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.sampler_N.shape != self.trainer_N.shape or self.sampler_N.ndim != 1 or not len(self.sampler_N):
            raise ValueError(
                "sampler and trainer must score the same tokens, at least one, got "
                f"{self.sampler_N.shape} and {self.trainer_N.shape}"
            )

    @property
    def largest_difference(self) -> float:
        """The largest |s - p|; infinite where a number is not finite."""
        differences = np.abs(self.sampler_N - self.trainer_N)
        return float(differences.max()) if np.isfinite(differences).all() else math.inf

    @property
    def noise(self) -> float:
        """Root mean square of s - p: how far two right implementations are apart, a token."""
        return float(np.sqrt(np.mean((self.sampler_N - self.trainer_N) ** 2)))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one reading says of one replica."""

    verdict: Verdict
    largest_difference: float
    """In nats."""
    tracked_share: float | None
    """None where the weights did not move visibly."""
    reason: str


def tracked_share(now: Pair, before: Pair) -> float:
    """Returns the share of the trainer's movement that the sampler followed. The trainer must have moved."""
    moved_N = now.trainer_N - before.trainer_N
    return float(np.dot(now.sampler_N - before.sampler_N, moved_N) / np.dot(moved_N, moved_N))


def noise_floor(noise: float, num_tokens: int) -> float:
    """Returns the smallest |p_now - p_before| from which fresh can be told from stale.

    Args:
        noise: root mean square difference of sampler and trainer a token, when both hold the same weights.
        num_tokens: N.
    """
    return NOISE_MARGIN * math.sqrt(2 * num_tokens) * noise


def judge(now: Pair, before: Pair | None, *, noise: float, bound: float) -> Judgement:
    """Judges one reading of one replica.

    Args:
        now: log-probs after the publication.
        before: of the same tokens at the last proven version; None at the first publication.
        noise: as `noise_floor` takes it.
        bound: largest allowed |s - p| in nats.
    """
    difference = now.largest_difference
    moved = 0.0 if before is None else float(np.linalg.norm(now.trainer_N - before.trainer_N))
    is_visible = before is not None and moved > 0 and moved >= noise_floor(noise, len(now.trainer_N))
    share = tracked_share(now, before) if is_visible and before is not None and math.isfinite(difference) else None
    if not difference <= bound:
        reason = f"log-probs differ by up to {difference:.3g}, allowed is {bound:.3g}"
        return Judgement(Verdict.FAILED, difference, share, reason)
    if share is None:
        return Judgement(Verdict.INDISTINGUISHABLE, difference, None, f"the trainer moved by {moved:.3g} only")
    if not abs(share - 1) <= SHARE_TOLERANCE:
        reason = f"it followed {share:.2f} of the trainer's movement (1 is fresh, 0 is stale)"
        return Judgement(Verdict.FAILED, difference, share, reason)
    return Judgement(Verdict.PROVEN, difference, share, "it followed the trainer")
