"""Algorithm settings that contradict each other or the sampling they work on."""

from collections.abc import Iterator

from strop.config.bundles import resolve_algorithm
from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.root import Config


def check_algorithm(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `algorithm`."""
    yield from _check_group(config)
    yield from _check_dead_settings(config)
    yield from _check_clipping(config)
    yield from _check_overlong(config)


def _check_group(config: Config) -> Iterator[Refusal]:
    if config.rollout.group_size == 1:
        yield Refusal(
            "rollout.group_size",
            f"must be at least 2: {config.algorithm.name} compares the samples of one prompt, got 1",
            "Set rollout.group_size to 8, say.",
        )


def _check_dead_settings(config: Config) -> Iterator[Refusal]:
    settings = config.algorithm
    resolved = resolve_algorithm(settings, config.rollout.max_new_tokens)
    if given(settings, "kl_estimator") and resolved.kl_coefficient == 0:
        yield does_nothing(
            "algorithm.kl_estimator",
            "algorithm.kl_coefficient is 0",
            "Set algorithm.kl_coefficient above 0, or leave algorithm.kl_estimator out.",
        )
    if resolved.kl_coefficient > 0 and resolved.kl_estimator == "k1":
        yield does_nothing(
            "algorithm.kl_estimator",
            "as a loss term k1 has a gradient whose expectation is 0, which is noise and no pull to the reference",
            'Take "k3" or "k2".',
        )
    if given(settings, "constant_length") and resolved.aggregation != "constant":
        yield does_nothing(
            "algorithm.constant_length",
            f"algorithm.aggregation is {resolved.aggregation}",
            'Set algorithm.aggregation to "constant", or leave algorithm.constant_length out.',
        )
    if given(settings, "max_sampling_rounds") and not resolved.drop_zero_signal:
        yield does_nothing(
            "algorithm.max_sampling_rounds",
            "groups without signal are kept, so each step samples once",
            "Set algorithm.drop_zero_signal to true, or leave algorithm.max_sampling_rounds out.",
        )


def _check_clipping(config: Config) -> Iterator[Refusal]:
    """With one update a batch the policy is the sampler's, the ratio is exactly 1 and nothing is clipped."""
    if config.training.updates_per_batch * config.training.epochs_per_batch > 1:
        return
    for key in ("clip_low", "clip_high"):
        if given(config.algorithm, key):
            yield does_nothing(
                f"algorithm.{key}",
                "with one update a batch the ratio is exactly 1 and never clipped",
                f"Set training.updates_per_batch or training.epochs_per_batch above 1, or leave algorithm.{key} out.",
            )


def _check_overlong(config: Config) -> Iterator[Refusal]:
    settings, budget = config.algorithm, config.rollout.max_new_tokens
    resolved = resolve_algorithm(settings, budget)
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
