"""Reads the data of a run: rows of any source become prompts, and each task is built once, with its rewards."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strop.config.data import DataConfig, Source
from strop.config.rewards import RewardConfig
from strop.data import (
    ChatRenderer,
    DataPart,
    DataReport,
    Duplicates,
    MissingColumnError,
    PromptTable,
    build_prompts,
    data_parts,
    read_source,
)
from strop.data.errors import SettingError
from strop.tasks import QuestionTask, WeightedReward, build_rewards, build_task, check_rewards
from strop.tasks.graded import GradedReward
from strop.tasks.model_host import ModelHost


@dataclass(frozen=True)
class JudgedTask:
    """A task and the rewards that its rows earn."""

    task: QuestionTask
    rewards: tuple[WeightedReward, ...]
    key: str = "data"
    """Where the run file sets its columns, the first place where there are several."""


@dataclass(frozen=True)
class DataReader:
    """Reads and renders any source as the training data are, and builds each task that it meets once."""

    data: DataConfig
    rewards: Sequence[RewardConfig]
    renderer: ChatRenderer
    host: ModelHost = field(default_factory=ModelHost)
    """Has the models that rewards ask."""
    _tasks: dict[str, JudgedTask] = field(default_factory=dict)
    _names: dict[tuple[object, ...], str] = field(default_factory=dict)
    """The name of each task by what it was built from."""

    @property
    def tasks(self) -> Mapping[str, JudgedTask]:
        """The tasks so far, by name."""
        return self._tasks

    def read(
        self, source: Source, limit: int | None, budget: int | None, key: str = "data.source"
    ) -> tuple[PromptTable, DataReport]:
        """The prompts of a source that stands under `key`, of at most `budget` tokens, with its report."""
        built = []
        for part in data_parts(self.data, source, key):
            judged = self._judged_task(part)
            table, report = build_prompts(
                read_source(part.source, name=part.name, limit=limit),
                judged.task,
                self.renderer,
                budget=budget,
                on_overlong=self.data.on_overlong,
                on_bad_row=self.data.on_bad_row,
                key=part.key,
                check_row=partial(_check_row, judged.rewards),
            )
            with _naming(part):
                check_rewards(judged.rewards, table.columns)
            built.append((table, report))
        whole = PromptTable(tuple(row for table, _ in built for row in table.rows))
        return whole, DataReport(
            sources=tuple(report for _, report in built),
            duplicates=Duplicates.of(whole.rows),
            budget_tokens=budget,
            columns=tuple(sorted(whole.columns)),
            notices=self.renderer.notices,
        )

    def _judged_task(self, part: DataPart) -> JudgedTask:
        """The task of a part: one of the same columns and rewards is there already, or a new one with its own name."""
        data = part.data
        assert data.task is not None, "a part without a task is refused where parts are read"
        rewards = [(place, reward) for place, reward in enumerate(self.rewards) if reward.judges(part.name)]
        columns = (data.prompt_column, data.answer_column, data.gold_response_column)
        key = (data.task, *columns, data.instruction, tuple(place for place, _ in rewards))
        if key not in self._names:
            task = build_task(data.task, data)
            if task.name in self._tasks:
                task = replace(task, name=f"{task.name} ({part.name})")
            self._names[key] = task.name
            built = build_rewards([reward for _, reward in rewards], task, self.host)
            self._tasks[task.name] = JudgedTask(task, built, part.key)
        return self._tasks[self._names[key]]


def _check_row(rewards: Sequence[WeightedReward], row: Mapping[str, Any]) -> None:
    """Raises ValueError where a grader cannot read its gold answer in the row; the columns are checked elsewhere."""
    for reward in rewards:
        if isinstance(reward.function, GradedReward):
            reward.function.check_row(row)


@contextmanager
def _naming(part: DataPart) -> Iterator[None]:
    """Says which part of a mixture an error is about."""
    try:
        yield
    except MissingColumnError as error:
        raise error.under(part.key) from None
    except SettingError as error:
        if part.key == "data":
            raise
        raise SettingError(
            f"{part.key} ({part.name}): {error.message}", "`rewards.sources` may keep a reward from these rows."
        ) from error
