"""Single judgements that a person should know of: samples that were lost, and rows that take long to judge."""

from collections.abc import Sequence

from strop.metrics import Metrics, maximum
from strop.records import Group, Sample

SLOW_REWARD_SECONDS = 5.0
"""A judgement that takes longer is told with its row."""


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
