"""The learning rate follows its schedule to the number."""

import pytest

from strop.config.training import TrainingConfig
from strop.training.schedule import check_schedule, learning_rate_at


def rates(config: TrainingConfig, count: int) -> list[float]:
    return [learning_rate_at(update, config) for update in range(count)]


def test_the_warm_up_rises_linearly_and_never_wastes_an_update_on_rate_zero() -> None:
    config = TrainingConfig(learning_rate=1.0, warmup_updates=4)
    assert rates(config, 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_a_constant_rate_without_warm_up_is_the_peak() -> None:
    assert rates(TrainingConfig(learning_rate=0.5), 3) == [0.5, 0.5, 0.5]


def test_linear_falls_to_the_minimum_and_stays() -> None:
    config = TrainingConfig(
        learning_rate=1.0, warmup_updates=2, schedule="linear", schedule_updates=6, minimum_learning_rate=0.2
    )
    assert rates(config, 8) == pytest.approx([0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_cosine_is_half_way_in_the_middle() -> None:
    config = TrainingConfig(learning_rate=1.0, schedule="cosine", schedule_updates=4)
    assert rates(config, 6) == pytest.approx([1.0, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2, 0.0, 0.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "linear"}, "schedule_updates must be set with the linear schedule"),
        ({"schedule_updates": 5}, "schedule_updates must be unset with a constant schedule, got 5"),
        ({"schedule": "cosine", "schedule_updates": 3, "warmup_updates": 3}, "must be above warmup_updates"),
        ({"schedule": "linear", "schedule_updates": 3, "minimum_learning_rate": 1.0}, "must be at most learning_rate"),
    ],
)
def test_contradicting_keys_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_schedule(TrainingConfig(**settings))
