"""Each second of a step is counted once."""

import contextlib

from strop.metrics import values
from strop.metrics.timing import PhaseClock


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_phase_inside_another_pauses_it() -> None:
    hands = Hands()
    clock = PhaseClock(hands)
    hands.now += 1
    with clock.phase("rollout"):
        hands.now += 2
        with clock.phase("reward"):
            hands.now += 4
        hands.now += 8
    with clock.phase("reward"):
        hands.now += 16
    assert values(clock.take()) == {
        "timing/reward_seconds": 20.0,
        "timing/rollout_seconds": 10.0,
        "timing/step_seconds": 31.0,
    }


def test_taking_begins_anew_even_inside_a_phase() -> None:
    hands = Hands()
    clock = PhaseClock(hands)
    with clock.phase("update"):
        hands.now += 1
        assert values(clock.take())["timing/update_seconds"] == 1.0
        hands.now += 2
    assert values(clock.take()) == {"timing/step_seconds": 2.0, "timing/update_seconds": 2.0}


def test_a_phase_that_raises_is_counted_and_ends() -> None:
    hands = Hands()
    clock = PhaseClock(hands)
    with contextlib.suppress(KeyError), clock.phase("reward"):
        hands.now += 3
        raise KeyError
    hands.now += 5
    assert values(clock.take()) == {"timing/reward_seconds": 3.0, "timing/step_seconds": 8.0}
