"""Which task: the closed set of names, and how each is built."""

from strop.config.data import DataConfig
from strop.data.errors import SettingError
from strop.errors import nearest_hint
from strop.tasks.answers import TASKS, answer_task
from strop.tasks.gold_response import with_gold_response
from strop.tasks.question import QuestionTask

NAMES = (*TASKS, "columns", "reasoning_gym:<name>")


def build_task(name: str, config: DataConfig) -> QuestionTask:
    """Builds the task `name` from the `data` section; raises SettingError with the nearest name where it is unknown."""
    return with_gold_response(_build(name, config), config)


def _build(name: str, config: DataConfig) -> QuestionTask:
    match name.split(":", maxsplit=1):
        case [known] if known in TASKS:
            return answer_task(known, config)
        case ["columns"]:
            from strop.tasks.columns import columns_task

            return columns_task(config)
        case ["reasoning_gym", generator]:
            from strop.tasks.reasoning_gym import reasoning_gym_task

            return reasoning_gym_task(generator, config)
        case _:
            hint = nearest_hint(name, NAMES)
            raise SettingError(f"data.task must be one of {', '.join(NAMES)}, got {name!r}{hint}")
