"""Settings of distillation that contradict each other, or the algorithm and the sampling beside them."""

from collections import Counter
from collections.abc import Iterator

from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import resolve_algorithm
from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.distillation import DistillationConfig
from strop.config.root import Config

_READ_ALONE = frozenset(("name", "aggregation", "constant_length"))
"""Keys of `algorithm` that distillation reads where it is alone and a loss."""
_OF_ADVANTAGES = frozenset(
    ("advantage", "advantage_std", "discount", "gae_lambda", "pass_k", "drop_zero_signal", "max_sampling_rounds")
)
_OF_REWARDS = frozenset(("truncated", "overlong_tokens", "overlong_buffer_tokens", "length_penalty", "keep_samples"))


def check_distillation(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `distillation`."""
    section = config.distillation
    if section is None:
        if not config.rewards:
            yield Refusal(
                "rewards",
                "must hold at least one, without a teacher to learn from, got none",
                'Leave it out for the task\'s grader, or add [[rewards]] with function = "my_file.py:name".',
            )
        return
    yield from _check_teachers(section)
    yield from _check_divergence(section)
    yield from _check_algorithm(config, section)
    if section.placement == "reward" and (config.rollout.top_p < 1 or config.rollout.top_k > 0):
        yield Refusal(
            "distillation.placement",
            "must be loss where sampling is cut by top_p or top_k: a reward is worked out from the sampler's "
            "log-probs, which are then not those of the policy",
            "Set rollout.top_p to 1 and rollout.top_k to 0.",
        )


def _check_teachers(section: DistillationConfig) -> Iterator[Refusal]:
    names = Counter(teacher.name or teacher.path for teacher in section.teachers)
    for name, count in names.items():
        if count > 1:
            yield Refusal(
                "distillation.teachers", f"must have names that differ, got {name!r} {count} times", "Set `name`."
            )
    if len(section.teachers) > 1 and section.route_column is None:
        yield Refusal(
            "distillation.route_column",
            f"must name the data column that says which of the {len(section.teachers)} teachers a row has, got none",
            "Set it, or leave one teacher.",
        )
    if len(section.teachers) == 1 and section.route_column is not None:
        yield does_nothing("distillation.route_column", "there is one teacher", "Leave it out.")


def _check_divergence(section: DistillationConfig) -> Iterator[Refusal]:
    if section.divergence == "k1" and section.placement == "loss":
        yield does_nothing(
            "distillation.divergence",
            "as a loss k1 has a gradient whose expectation is 0, which is noise and no pull to the teacher",
            'Take "forward_kl", "k2" or "k3", or distillation.placement = "reward".',
        )
    if section.divergence == "forward_kl" and section.placement == "reward":
        yield does_nothing(
            "distillation.divergence",
            "as a reward forward_kl is the same whatever token was sampled, so its gradient has the expectation 0",
            'Take "k1", or distillation.placement = "loss".',
        )
    if section.divergence != "forward_kl":
        for key in ("top_k", "tail"):
            if given(section, key):
                yield does_nothing(
                    f"distillation.{key}",
                    f"distillation.divergence is {section.divergence}, of sampled tokens alone",
                    f'Set distillation.divergence to "forward_kl", or leave distillation.{key} out.',
                )


def _check_algorithm(config: Config, section: DistillationConfig) -> Iterator[Refusal]:
    resolved = resolve_algorithm(config.algorithm, config.rollout.max_new_tokens)
    if section.divergence == "forward_kl" and resolved.kl_coefficient > 0 and resolved.kl_estimator == "full":
        yield Refusal(
            "algorithm.kl_estimator",
            "must be one of sampled tokens beside distillation with forward_kl: the policy is scored at the likely "
            "tokens of one other model",
            'Take "k2" or "k3".',
        )
    if section.with_rewards:
        if not config.rewards:
            yield Refusal("rewards", "must hold at least one with distillation.with_rewards, got none", "Add one.")
        return
    for key in sorted(_unread(config.algorithm, section)):
        yield does_nothing(
            f"algorithm.{key}",
            "nothing but the teacher is learned from",
            f"Set distillation.with_rewards to true, or leave algorithm.{key} out.",
        )


def _unread(settings: AlgorithmConfig, section: DistillationConfig) -> set[str]:
    """Keys that are given and that nobody reads where the teacher is alone."""
    every = frozenset(AlgorithmConfig.model_fields)
    unread = every - _READ_ALONE if section.placement == "loss" else _OF_ADVANTAGES | _OF_REWARDS
    return {key for key in unread if given(settings, key)}
