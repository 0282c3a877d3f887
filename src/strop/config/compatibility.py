"""The compatibility matrix: which parts of an algorithm go together, and which keys each part reads.

    advantage estimator x policy loss x KL term x correction x schedule x engine

A function of the user's in place of an estimator or a loss goes with everything: nobody knows what it reads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

from strop.config.algorithm import AdvantageName, KlEstimator, LossName
from strop.config.bundles import ResolvedAlgorithm

ADVANTAGES: tuple[str, ...] = get_args(AdvantageName)
LOSSES: tuple[str, ...] = get_args(LossName)

ADVANTAGE_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "group": frozenset(("advantage_std",)),
        "gpg": frozenset(("advantage_std",)),
        "gdpo": frozenset(("advantage_std",)),
        "reinforce_pp": frozenset(("discount",)),
        "reinforce_pp_baseline": frozenset(("discount",)),
        "pass_at_k": frozenset(("pass_k",)),
        "gae": frozenset(("discount", "gae_lambda")),
    }
)
"""Keys of `algorithm` that an estimator reads, of those that not every estimator does."""

_BOUNDS = frozenset(("clip_low", "clip_high"))
LOSS_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "clip": _BOUNDS | {"dual_clip"},
        "gspo": _BOUNDS,
        "gmpo": _BOUNDS,
        "cispo": _BOUNDS,
        "sapo": frozenset(("positive_temperature", "negative_temperature")),
        "dppo_tv": _BOUNDS,
        "dppo_kl": _BOUNDS,
        "clip_cov": _BOUNDS | {"covariance_share", "covariance_low", "covariance_high"},
        "kl_cov": frozenset(("covariance_share", "penalty")),
        "dro": frozenset(("penalty",)),
    }
)
"""Keys of `algorithm` that a policy loss reads, of those that not every loss does."""

NEEDS_GROUPS = frozenset(ADVANTAGES) - {"gae", "reinforce_pp", "remax"}
"""Estimators that compare the samples of one prompt, so that a group of one says nothing."""

WITHOUT_RATIO = frozenset(("gpg", "reinforce"))
"""Losses without a ratio of policies."""

OF_WHOLE_SAMPLES = frozenset(("gspo", "gmpo"))
"""Losses with one ratio a sample."""

ON_REWARDS_ALONE = MappingProxyType(
    {
        "gdpo": "it normalises each reward apart, and a KL penalty is none of them",
        "pass_at_k": "it takes the best reward of several samples, and a KL penalty is no reward of a sample",
        "maxrl": "it divides by the mean reward, which a KL penalty can make 0 or negative",
        "best_of_n": "it trains on the best sample alone, with an advantage of 1, so a penalty would have no effect",
    }
)
"""Estimators that a KL term in the reward does not go with, and why."""


@dataclass(frozen=True, slots=True)
class Combination:
    """The parts that must go together."""

    advantage: str
    loss: str
    kl: str = "none"
    """none, or placement and estimator as `loss:k3`."""
    correction: str = "none"
    """none, two-policy, token, sequence, token-band, geometric-band, sequence-band."""
    schedule: str = "sync"
    engine: str = "fsdp2"


KL_TERMS: tuple[str, ...] = (
    "none",
    *(f"{place}:{estimator}" for place in ("loss", "reward") for estimator in get_args(KlEstimator)),
)
CORRECTIONS = ("none", "two-policy", "token", "sequence", "token-band", "geometric-band", "sequence-band")
SCHEDULES = ("sync",)
ENGINES = ("fsdp2",)


def reason_against(parts: Combination) -> tuple[str, str] | None:
    """Returns the key to blame and the reason why the parts do not go together; None where they do."""
    return next((found for found in (_kl_reason(parts), _correction_reason(parts), _loss_reason(parts)) if found), None)


def combinations_of(settings: ResolvedAlgorithm, schedule: str, engine: str) -> Iterator[Combination]:
    """Yields what the settings combine: one combination for each correction that is on."""
    kl = f"{settings.kl_placement}:{settings.kl_estimator}" if settings.kl_coefficient > 0 else "none"
    for correction in _corrections(settings):
        yield Combination(settings.advantage, settings.loss, kl, correction, schedule, engine)


def _corrections(settings: ResolvedAlgorithm) -> list[str]:
    correction = settings.correction
    bands = {
        "token-band": correction.token_band,
        "geometric-band": correction.geometric_band,
        "sequence-band": correction.sequence_band,
    }
    found = [name for name, band in bands.items() if band is not None]
    found += ["two-policy"] if correction.policies == 2 else []
    return found + ([correction.weight] if correction.weight != "none" or not found else [])


def _kl_reason(parts: Combination) -> tuple[str, str] | None:
    place, _, estimator = parts.kl.partition(":")
    if place == "loss" and estimator == "k1":
        return (
            "algorithm.kl_estimator",
            "does nothing: as a loss term k1 has a gradient whose expectation is 0, which is noise and no pull to the "
            "reference",
        )
    if place == "reward" and (estimator == "full" or estimator.endswith("+")):
        return (
            "algorithm.kl_estimator",
            f"must be k1, k2, k3 or abs in the reward, which has a value and no gradient, got {estimator}",
        )
    if place == "reward" and parts.advantage in ON_REWARDS_ALONE:
        reason = ON_REWARDS_ALONE[parts.advantage]
        return "algorithm.kl_placement", f"must be loss with the advantage {parts.advantage}: {reason}"
    return None


def _correction_reason(parts: Combination) -> tuple[str, str] | None:
    if parts.correction == "two-policy" and parts.loss in WITHOUT_RATIO:
        return (
            "algorithm.correction.policies",
            f"does nothing: the loss {parts.loss} has no ratio that could be taken to the sampler",
        )
    if parts.correction in ("token", "token-band") and parts.loss in OF_WHOLE_SAMPLES:
        key = "weight" if parts.correction == "token" else "token_band"
        return (
            f"algorithm.correction.{key}",
            f"must not be of single tokens: the loss {parts.loss} has one ratio a sample, of which a token has no "
            "part of its own",
        )
    return None


def _loss_reason(parts: Combination) -> tuple[str, str] | None:
    if parts.advantage == "best_of_n" and parts.loss in ("clip_cov", "kl_cov"):
        return (
            "algorithm.loss",
            f"must be another with the advantage best_of_n: {parts.loss} chooses tokens by the covariance with the "
            "advantage, which is 1 wherever there is loss",
        )
    return None
