"""Single judgements that a person should know of: samples that were lost, and rows that take long to judge."""

from collections.abc import Sequence

from strop.metrics import Metrics, maximum
from strop.records import Group, Sample

MAX_UNJUDGED_STEPS = 3
"""A run ends where no sample of so many steps in a row could be judged: it only burns time."""

SLOW_REWARD_SECONDS = 5.0
"""A judgement that takes longer is told with its row."""


class UnjudgedSteps:
    """Counts the steps in a row in which no sample had a valid reward."""

    def __init__(self) -> None:
        self.num_last = 0
        self._has_judged = False

    def count(self, groups: Sequence[Group]) -> None:
        """Takes a step into account."""
        is_judged = any(group.valid_rewards for group in groups) or not is_rewarded(groups)
        self._has_judged |= is_judged
        self.num_last = 0 if is_judged else self.num_last + 1

    @property
    def ends_run(self) -> bool:
        """Whether there is no use in going on."""
        return self.num_last >= MAX_UNJUDGED_STEPS

    @property
    def was_all(self) -> bool:
        """Whether there were steps, and none with a valid reward."""
        return self.num_last > 0 and not self._has_judged


def is_rewarded(groups: Sequence[Group]) -> bool:
    """Whether there is any reward; where only a teacher is learned from there may be none."""
    samples = [sample for group in groups for sample in group.samples]
    return any(sample.reward is not None or sample.reward_parts or sample.error for sample in samples)


def slowest_judgement(samples: Sequence[Sample]) -> Metrics:
    """Returns the time of the slowest judgement, where there was any."""
    seconds = [part.seconds for sample in samples for part in sample.reward_parts.values()]
    return {"timing/slowest_reward_seconds": maximum(max(seconds), "s")} if seconds else {}


def reward_warnings(groups: Sequence[Group]) -> dict[str, str]:
    """What a person should know of single judgements, by a name for the kind: samples lost, and slow ones.

    Each text names the row: the first that was lost, and the slowest.
    """
    judged = [
        (name, part, f"prompt {group.prompt.prompt_id}, sample {sample.index}")
        for group in groups
        for sample in group.samples
        for name, part in sample.reward_parts.items()
    ]
    warnings: dict[str, str] = {}
    for name in dict.fromkeys(name for name, _, _ in judged):
        parts = [(part, place) for other, part, place in judged if other == name]
        errors = [part.error for part, _ in parts if part.error is not None]
        if errors:
            lost = f"{len(errors)} of {len(parts)} samples have no value of reward {name!r}"
            warnings[f"lost {name}"] = f"{lost}, the first: {errors[0].splitlines()[0]}"
        slowest, place = max(parts, key=lambda pair: pair[0].seconds)
        if slowest.seconds >= SLOW_REWARD_SECONDS:
            warnings[f"slow {name}"] = f"reward {name!r} took {slowest.seconds:.1f} s for {place}"
    return warnings
