"""Single judgements that a person should know of."""

from strop.metrics import values
from strop.records import FinishState, RewardPart, Sample
from strop.trainers.judgements import reward_warnings, slowest_judgement
from support.groups import stopped_group


def test_lost_and_slow_judgements_are_told_with_their_rows() -> None:
    def judged(index: int, part: RewardPart) -> Sample:
        return Sample(index, (), FinishState.STOPPED, part.value, {"mine": part})

    group = stopped_group(1)
    lost = RewardPart(None, error="reward 'mine', prompt p, sample 1: ValueError: no\nTraceback", seconds=0.1)
    groups = [
        group.with_samples([judged(0, RewardPart(1.0, seconds=7.25)), judged(1, lost), judged(2, RewardPart(None))])
    ]
    assert reward_warnings(groups) == {
        "lost mine": "1 of 3 samples have no value of reward 'mine', the first: reward 'mine', prompt p, sample 1: "
        "ValueError: no",
        "slow mine": "reward 'mine' took 7.2 s for prompt made:0, sample 0",
    }
    measured = values(slowest_judgement(groups[0].samples))
    assert measured["timing/slowest_reward_seconds"] == 7.25
    assert reward_warnings([group.with_samples([judged(0, RewardPart(1.0, seconds=0.1))])]) == {}
    assert slowest_judgement([]) == {}
