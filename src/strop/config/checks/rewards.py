"""Rewards that contradict each other, or leave rows without any."""

from collections import Counter
from collections.abc import Iterator

from strop.config.checks.judging import check_judging
from strop.config.checks.mixture import PosedData, all_posed_data
from strop.config.checks.refusal import Refusal
from strop.config.rewards import RewardConfig
from strop.config.root import Config
from strop.errors import nearest_hint


def check_rewards(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `rewards`."""
    posed = all_posed_data(config)
    for place, reward in enumerate(config.rewards):
        yield from _check_function(f"rewards[{place}]", reward, posed)
        yield from check_judging(f"rewards[{place}]", reward)
        yield from _check_sources(f"rewards[{place}].sources", reward, posed)
    names = Counter(reward.own_name for reward in config.rewards)
    for name in (name for name, count in names.items() if count > 1):
        yield Refusal("rewards", f"must have names that differ, got {name!r} twice", "Set `name` on one of them.")
    if config.distillation is not None and not config.distillation.with_rewards:
        return
    if config.rewards and all(reward.weight == 0 for reward in config.rewards):
        yield Refusal(
            "rewards", "must have a weight other than 0 somewhere: nothing would be learned", "Set a weight of 1."
        )
    elif config.rewards:
        yield from _check_unrewarded(config, posed)


def _check_function(key: str, reward: RewardConfig, posed: list[PosedData]) -> Iterator[Refusal]:
    ungraded = [one for one in posed if one.task == "columns" and reward.judges(one.name)]
    if reward.function == "task" and ungraded:
        yield Refusal(
            f"{key}.function",
            'must be a function of yours with the task "columns", which has no grader, got "task" for the rows of '
            f"{ungraded[0].name}",
            f'Write "my_file.py:name", or name in {key}.sources the data sets whose task has a grader.',
        )
    if reward.function is None or reward.function == "task":
        return
    if not all(reward.function.rpartition(":")[::2]):
        yield Refusal(
            f"{key}.function",
            f'must be "task", "my_file.py:name" or "package.module:name", got {reward.function!r}',
            "Name the function behind a colon.",
        )


def _check_sources(key: str, reward: RewardConfig, posed: list[PosedData]) -> Iterator[Refusal]:
    known = dict.fromkeys(one.name for one in posed)
    for name in reward.sources or ():
        if name not in known:
            yield Refusal(
                key,
                f"must be names of data sets ({', '.join(known)}), got {name!r}{nearest_hint(name, known)}",
                "Take one of these, or set `name` in a part of the mixture.",
            )


def _check_unrewarded(config: Config, posed: list[PosedData]) -> Iterator[Refusal]:
    """Rows that no reward with a weight judges would teach nothing."""
    for one in posed:
        if not any(reward.weight and reward.judges(one.name) for reward in config.rewards):
            yield Refusal(
                "rewards",
                f"must judge the rows of {one.source_key} too, with a weight other than 0, got none for {one.name!r}",
                f"Add {one.name!r} to the `sources` of a reward, or leave `sources` out there.",
            )
