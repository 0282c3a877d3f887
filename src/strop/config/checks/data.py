"""Prompts and rewards that cannot meet."""

import difflib
from collections import Counter
from collections.abc import Iterator

from strop.config.checks.refusal import Refusal
from strop.config.data import DataConfig, ReasoningGymSource
from strop.config.root import Config

_TASKS = ("gsm8k", "math", "columns")
_REASONING_GYM = "reasoning_gym:"


def check_data(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `data`."""
    task = config.data.task
    if task.startswith(_REASONING_GYM):
        yield from _check_reasoning_gym(config.data)
    elif task not in _TASKS:
        near = difflib.get_close_matches(task, (*_TASKS, _REASONING_GYM), n=1)
        remedy = f"Did you mean {near[0]}?" if near else 'Take "columns" and a reward function of your own.'
        yield Refusal(
            "data.task", f"must be one of {', '.join(_TASKS)} or {_REASONING_GYM}<name>, got {task!r}", remedy
        )


def _check_reasoning_gym(data: DataConfig) -> Iterator[Refusal]:
    """The generator scores by the metadata of its own rows."""
    name = data.task.removeprefix(_REASONING_GYM)
    if not isinstance(data.source, ReasoningGymSource):
        yield Refusal(
            "data.source.type",
            f"must be reasoning_gym with the task {data.task}, which scores only rows that it generated, "
            f"got {data.source.type}",
            f'Set data.source to {{ type = "reasoning_gym", name = "{name}" }}, or take another task.',
        )
    elif data.source.name != name:
        yield Refusal(
            "data.source.name",
            f"must be the generator of the task ({name}), got {data.source.name}",
            f"Set data.task to {_REASONING_GYM}{data.source.name}, or change the source.",
        )


def check_rewards(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `rewards`."""
    for place, reward in enumerate(config.rewards):
        if reward.function == "task" and config.data.task == "columns":
            yield Refusal(
                f"rewards[{place}].function",
                'must be a function of yours with the task "columns", which has no grader, got "task"',
                'Write "my_file.py:name".',
            )
        if reward.function != "task" and not all(reward.function.rpartition(":")[::2]):
            yield Refusal(
                f"rewards[{place}].function",
                f'must be "task", "my_file.py:name" or "package.module:name", got {reward.function!r}',
                "Name the function behind a colon.",
            )
    names = Counter(reward.name or reward.function.rpartition(":")[2] for reward in config.rewards)
    for name in (name for name, count in names.items() if count > 1):
        yield Refusal("rewards", f"must have names that differ, got {name!r} twice", "Set `name` on one of them.")
    if all(reward.weight == 0 for reward in config.rewards):
        yield Refusal(
            "rewards", "must have a weight other than 0 somewhere: nothing would be learned", "Set a weight of 1."
        )
