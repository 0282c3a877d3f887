"""The learning rate as a pure function of how many updates were applied."""

import math

from strop.config.training import TrainingConfig


def check_schedule(config: TrainingConfig) -> None:
    """Raises ValueError where the schedule's keys contradict each other."""
    updates = config.schedule_updates
    if config.schedule == "constant":
        if updates is not None:
            raise ValueError(
                f"schedule_updates must be unset with a constant schedule, got {updates}; choose linear or cosine"
            )
        return
    if updates is None:
        raise ValueError(f"schedule_updates must be set with the {config.schedule} schedule, got None")
    if updates <= config.warmup_updates:
        raise ValueError(f"schedule_updates must be above warmup_updates ({config.warmup_updates}), got {updates}")
    if config.minimum_learning_rate > config.learning_rate:
        raise ValueError(
            f"minimum_learning_rate must be at most learning_rate ({config.learning_rate}), "
            f"got {config.minimum_learning_rate}"
        )


def learning_rate_at(update: int, config: TrainingConfig) -> float:
    """Returns the learning rate of the update number `update`, counted from 0 over applied updates.

    The warm-up rises linearly and reaches the peak with its last update; no update has rate 0 in it. The
    course after it reaches `minimum_learning_rate` with update number `schedule_updates` and stays there.
    """
    peak, minimum = config.learning_rate, config.minimum_learning_rate
    if update < config.warmup_updates:
        return peak * (update + 1) / config.warmup_updates
    if config.schedule == "constant" or config.schedule_updates is None:
        return peak
    progress = min(1.0, (update - config.warmup_updates) / (config.schedule_updates - config.warmup_updates))
    remaining = 1 - progress if config.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return minimum + (peak - minimum) * remaining
