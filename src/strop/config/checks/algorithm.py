"""Algorithm settings that contradict each other or the sampling they work on."""

import difflib
from collections.abc import Iterator, Mapping, Sequence

from strop.config.algorithm import AlgorithmConfig, CorrectionConfig
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.compatibility import (
    ADVANTAGE_KEYS,
    ADVANTAGES,
    LOSS_KEYS,
    LOSSES,
    NEEDS_GROUPS,
    combinations_of,
    reason_against,
)
from strop.config.root import Config


def check_algorithm(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `algorithm`."""
    resolved = resolve_algorithm(config.algorithm, config.rollout.max_new_tokens)
    unknown = [*_check_names(config.algorithm)]
    yield from unknown
    if unknown:
        return
    yield from _check_parts(config, resolved)
    yield from _check_group(config, resolved)
    yield from _check_unread(config.algorithm, "advantage", resolved.advantage, ADVANTAGE_KEYS)
    yield from _check_unread(config.algorithm, "loss", resolved.loss, LOSS_KEYS)
    yield from _check_dead_settings(config.algorithm, resolved)
    yield from _check_ratio(config, resolved)
    yield from _check_correction(config.algorithm.correction)
    yield from _check_critic(config, resolved)
    yield from _check_overlong(config, resolved)


def _check_names(settings: AlgorithmConfig) -> Iterator[Refusal]:
    for key, names in (("advantage", ADVANTAGES), ("loss", LOSSES)):
        name = getattr(settings, key)
        if name is not None and ":" not in name and name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield Refusal(
                f"algorithm.{key}",
                f"must be one of {', '.join(names)}, or a Python function as my_file.py:name, got {name!r}{hint}",
                "Take one of these.",
            )


def _check_parts(config: Config, resolved: ResolvedAlgorithm) -> Iterator[Refusal]:
    found = (
        reason_against(parts) for parts in combinations_of(resolved, config.trainer.schedule, config.training.type)
    )
    for key, reason in dict.fromkeys(refused for refused in found if refused is not None):
        yield Refusal(key, reason, "See docs/algorithms.md for what goes together.")


def _check_group(config: Config, resolved: ResolvedAlgorithm) -> Iterator[Refusal]:
    size = config.rollout.group_size
    if size == 1 and resolved.advantage in NEEDS_GROUPS:
        yield Refusal(
            "rollout.group_size",
            f"must be at least 2: {resolved.name} compares the samples of one prompt, got 1",
            "Set rollout.group_size to 8, say.",
        )
    if resolved.drop_zero_signal and resolved.advantage in ADVANTAGES and resolved.advantage not in NEEDS_GROUPS:
        yield Refusal(
            "algorithm.drop_zero_signal",
            f"must be false with the advantage {resolved.advantage}, which learns from groups of equal rewards too",
            "Leave it out.",
        )
    if resolved.advantage == "pass_at_k" and resolved.pass_k >= size:
        yield Refusal(
            "algorithm.pass_k",
            f"must be below rollout.group_size ({size}), or every sample shares one reward, got {resolved.pass_k}",
            "Lower it, or raise rollout.group_size.",
        )
    if resolved.keep_samples is not None and resolved.keep_samples >= size:
        yield does_nothing(
            "algorithm.keep_samples",
            f"a group has {size} samples, and all are kept",
            "Set it below rollout.group_size, or leave it out.",
        )


def _check_unread(
    settings: AlgorithmConfig, part: str, name: str, keys: Mapping[str, frozenset[str]]
) -> Iterator[Refusal]:
    """Refuses keys that belong to another estimator or loss than the chosen one."""
    if ":" in name:
        return
    for key in sorted(frozenset().union(*keys.values()) - keys.get(name, frozenset())):
        if given(settings, key):
            readers = " or ".join(reader for reader, read in keys.items() if key in read)
            yield does_nothing(
                f"algorithm.{key}",
                f"algorithm.{part} is {name}, which does not read it",
                f"Set algorithm.{part} to {readers}, or leave algorithm.{key} out.",
            )


def _check_dead_settings(settings: AlgorithmConfig, resolved: ResolvedAlgorithm) -> Iterator[Refusal]:
    for key in ("kl_estimator", "kl_placement", "kl_top_k", "kl_target", "kl_horizon"):
        if given(settings, key) and resolved.kl_coefficient == 0:
            yield does_nothing(
                f"algorithm.{key}",
                "algorithm.kl_coefficient is 0",
                f"Set algorithm.kl_coefficient above 0, or leave algorithm.{key} out.",
            )
    if resolved.kl_coefficient > 0:
        yield from _unless(settings, "kl_top_k", resolved.kl_estimator == "full", "algorithm.kl_estimator is not full")
        yield from _unless(settings, "kl_horizon", resolved.kl_target is not None, "algorithm.kl_target is left out")
    yield from _unless(
        settings,
        "constant_length",
        resolved.aggregation == "constant",
        f"algorithm.aggregation is {resolved.aggregation}",
    )
    yield from _unless(
        settings,
        "max_sampling_rounds",
        resolved.drop_zero_signal,
        "groups without signal are kept, so each step samples once",
    )


def _unless(settings: AlgorithmConfig, key: str, is_read: bool, because: str) -> Iterator[Refusal]:
    if given(settings, key) and not is_read:
        yield does_nothing(f"algorithm.{key}", because, f"Change that, or leave algorithm.{key} out.")


_OF_RATIOS: Sequence[str] = (
    "clip_low",
    "clip_high",
    "dual_clip",
    "positive_temperature",
    "negative_temperature",
    "penalty",
)


def _check_ratio(config: Config, resolved: ResolvedAlgorithm) -> Iterator[Refusal]:
    """With one update a batch the policy is the sampler's, and the ratio is exactly 1."""
    is_one_update = config.training.updates_per_batch * config.training.epochs_per_batch == 1
    if not is_one_update or resolved.correction.policies == 2 or ":" in resolved.loss:
        return
    for key in _OF_RATIOS:
        if given(config.algorithm, key) and key in LOSS_KEYS.get(resolved.loss, ()):
            yield does_nothing(
                f"algorithm.{key}",
                "with one update a batch the ratio is exactly 1 and never clipped",
                f"Set training.updates_per_batch or training.epochs_per_batch above 1, or leave algorithm.{key} out.",
            )


def _check_correction(settings: CorrectionConfig) -> Iterator[Refusal]:
    place = "algorithm.correction"
    for key in ("weight_cap", "normalise"):
        if given(settings, key) and settings.weight == "none":
            yield does_nothing(
                f"{place}.{key}", f"{place}.weight is none", f"Set {place}.weight, or leave {place}.{key} out."
            )
    if settings.policies == 2 and settings.weight != "none":
        yield Refusal(
            f"{place}.weight",
            "must be none where correction.policies is 2: the ratio new / rollout holds the mismatch already, and it "
            "would count twice",
            "Leave one of them out.",
        )
    for key in ("token_band", "geometric_band", "sequence_band"):
        band = getattr(settings, key)
        if band is not None and not 0 <= band[0] < 1 < band[1]:
            yield Refusal(
                f"{place}.{key}",
                f"must be two ratios around 1, the lower one first, got {list(band)}",
                "Take [0.5, 5.0], say.",
            )


def _check_critic(config: Config, resolved: ResolvedAlgorithm) -> Iterator[Refusal]:
    if resolved.advantage == "gae":
        num_updates = config.training.updates_per_batch * config.training.epochs_per_batch
        if given(config.critic, "value_clip") and num_updates == 1:
            yield does_nothing(
                "critic.value_clip",
                "with one update a batch the values are those that the step found",
                "Set training.updates_per_batch or training.epochs_per_batch above 1, or leave it out.",
            )
        return
    for key in type(config.critic).model_fields:
        if given(config.critic, key):
            yield does_nothing(
                f"critic.{key}",
                f"the advantage {resolved.advantage} asks for no values, so there is no critic",
                f'Set algorithm.name to "ppo" or algorithm.advantage to "gae", or leave critic.{key} out.',
            )


def _check_overlong(config: Config, resolved: ResolvedAlgorithm) -> Iterator[Refusal]:
    settings, budget = config.algorithm, config.rollout.max_new_tokens
    if resolved.truncated != "soft-overlong":
        for key in ("overlong_tokens", "overlong_buffer_tokens"):
            if given(settings, key):
                yield does_nothing(
                    f"algorithm.{key}",
                    f"algorithm.truncated is {resolved.truncated}",
                    f'Set algorithm.truncated to "soft-overlong", or leave algorithm.{key} out.',
                )
        return
    if resolved.overlong_tokens > budget:
        yield Refusal(
            "algorithm.overlong_tokens",
            f"must be at most rollout.max_new_tokens ({budget}), or no sample is ever punished in full, "
            f"got {resolved.overlong_tokens}",
            "Lower it, or leave it out.",
        )
    if resolved.overlong_buffer_tokens > resolved.overlong_tokens:
        yield Refusal(
            "algorithm.overlong_buffer_tokens",
            f"must be at most algorithm.overlong_tokens ({resolved.overlong_tokens}), or even an empty sample is "
            f"punished, got {resolved.overlong_buffer_tokens}",
            "Lower it, or leave it out.",
        )
