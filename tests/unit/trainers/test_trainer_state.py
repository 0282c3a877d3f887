"""The trainer's counters come back from a checkpoint, or are refused."""

import pytest

from strop.trainers.state import TrainerState


def test_counters_are_restored() -> None:
    restored = TrainerState()
    restored.restore(TrainerState(step=3, version=2, tokens_sampled=70, samples_rewarded=8).as_dict())
    assert restored == TrainerState(step=3, version=2, tokens_sampled=70, samples_rewarded=8)


@pytest.mark.parametrize("state", [{"step": 3}, {**TrainerState().as_dict(), "epoch": 1}])
def test_counters_of_another_kind_are_refused_and_change_nothing(state: dict[str, int]) -> None:
    restored = TrainerState(step=1)
    with pytest.raises(ValueError, match=r"the counters must be \['samples_rewarded', 'step'"):
        restored.restore(state)
    assert restored == TrainerState(step=1)
