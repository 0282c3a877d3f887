"""Optimizer settings that contradict each other."""

from collections.abc import Iterator

from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.root import Config
from strop.config.training import TrainingConfig


def check_training(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `training`."""
    training = config.training
    if training.schedule == "constant":
        yield from _check_constant_schedule(training)
    else:
        yield from _check_falling_schedule(training)
    num_prompts = config.rollout.prompts_per_step
    if training.updates_per_batch > num_prompts:
        yield Refusal(
            "training.updates_per_batch",
            f"must be at most rollout.prompts_per_step ({num_prompts}), got {training.updates_per_batch}",
            "Lower it, or raise the other: a batch is cut between prompts.",
        )
    yield from check_shard_size(training, config.cluster.trainers)


def check_shard_size(training: TrainingConfig, num_trainers: int) -> Iterator[Refusal]:
    """Yields a refusal where the training processes cannot be parted into groups that hold the model."""
    if training.shard_size is not None and num_trainers % training.shard_size:
        yield Refusal(
            "training.shard_size",
            f"must divide the number of training processes ({num_trainers}), got {training.shard_size}",
            "Leave it out to part every weight over all of them.",
        )


def _check_constant_schedule(training: TrainingConfig) -> Iterator[Refusal]:
    for key in ("schedule_updates", "minimum_learning_rate"):
        if given(training, key):
            yield does_nothing(
                f"training.{key}",
                "training.schedule is constant",
                f'Set training.schedule to "linear" or "cosine", or leave training.{key} out.',
            )


def _check_falling_schedule(training: TrainingConfig) -> Iterator[Refusal]:
    if training.schedule_updates is None:
        yield Refusal(
            "training.schedule_updates",
            f"must be given with the schedule {training.schedule}, got nothing",
            "Set it to the optimizer updates of the whole run: run.steps * training.updates_per_batch "
            "* training.epochs_per_batch.",
        )
    elif training.warmup_updates >= training.schedule_updates:
        yield Refusal(
            "training.warmup_updates",
            f"must be below training.schedule_updates ({training.schedule_updates}), got {training.warmup_updates}",
            "Lower it: the learning rate must rise before it falls.",
        )
    if training.minimum_learning_rate >= training.learning_rate:
        yield Refusal(
            "training.minimum_learning_rate",
            f"must be below training.learning_rate ({training.learning_rate}), got {training.minimum_learning_rate}",
            "Lower it, or take the constant schedule.",
        )
