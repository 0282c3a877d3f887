"""Tasks that do not exist, or that do not fit their rows."""

import difflib
from collections.abc import Iterator

from strop.config.checks.mixture import PosedData, all_posed_data
from strop.config.checks.refusal import Refusal
from strop.config.data import ReasoningGymSource
from strop.config.root import Config

_TASKS = (
    "gsm8k",
    "math",
    "math_verify",
    "final_answer",
    "choice",
    "exact",
    "f1",
    "numeric",
    "regex",
    "json_schema",
    "code",
    "columns",
)
"""As `strop.tasks.build` has them; config imports no tasks."""
_REASONING_GYM = "reasoning_gym:"


def check_data(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `data`, and of the tasks of held-out rows."""
    unknown: set[str] = set()
    for posed in all_posed_data(config):
        task = posed.task
        if task is None:
            continue
        if task.startswith(_REASONING_GYM):
            yield from _check_reasoning_gym(posed, task)
        elif task not in _TASKS and posed.task_key not in unknown:
            unknown.add(posed.task_key)
            near = difflib.get_close_matches(task, (*_TASKS, _REASONING_GYM), n=1)
            remedy = f"Did you mean {near[0]}?" if near else 'Take "columns" and a reward function of your own.'
            yield Refusal(
                posed.task_key, f"must be one of {', '.join(_TASKS)} or {_REASONING_GYM}<name>, got {task!r}", remedy
            )


def _check_reasoning_gym(posed: PosedData, task: str) -> Iterator[Refusal]:
    """The generator scores by the metadata of its own rows."""
    name = task.removeprefix(_REASONING_GYM)
    if not isinstance(posed.source, ReasoningGymSource):
        yield Refusal(
            f"{posed.source_key}.type",
            f"must be reasoning_gym with the task {task}, which scores only rows that it generated, "
            f"got {posed.source.type}",
            f'Set {posed.source_key} to {{ type = "reasoning_gym", name = "{name}" }}, or take another task.',
        )
    elif posed.source.name != name:
        yield Refusal(
            f"{posed.source_key}.name",
            f"must be the generator of the task ({name}), got {posed.source.name}",
            f"Set {posed.task_key} to {_REASONING_GYM}{posed.source.name}, or change the source.",
        )
