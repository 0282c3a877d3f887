"""A task's own grader as a reward function."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strop.data.errors import SettingError
from strop.records import Group, RewardPart
from strop.tasks.choice import ColumnChoice
from strop.tasks.grading import GradeMode, Grader, gold_text, row_mode
from strop.tasks.grading.options import OptionError
from strop.tasks.grading.table import GRADERS, load_grader
from strop.tasks.parts import failed_part, part_of, place_of
from strop.tasks.worker import BlockingWorker

Judge = Callable[[str, Mapping[str, Any], GradeMode], float]
"""From a completion, its data row and the mode to a score. It may raise: the sample is then invalid."""


@dataclass(frozen=True)
class GradedReward:
    """Judges every sample by a grader and the row's gold answer; implements `RewardFunction`.

    A grader that raises or runs over its time makes its sample invalid, with the reason.
    """

    name: str
    judge: Judge
    columns: tuple[ColumnChoice, ...]
    """The columns that the grader reads."""
    modes: tuple[GradeMode, ...] = (GradeMode.STRICT,)
    """The modes that the grader knows."""
    mode: GradeMode = GradeMode.STRICT
    timeout_seconds: float = 60.0
    """Time limit of one sample."""
    bind: Callable[[Mapping[str, Any]], Judge] | None = None
    """From the grader's own options to its judge; None where it has none."""
    _worker: BlockingWorker = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_worker", BlockingWorker(f"grader {self.name!r}", self.timeout_seconds))

    @classmethod
    def by_answer(cls, name: str, answer: ColumnChoice) -> "GradedReward":
        """The reward of the grader called `name`, which compares with one gold answer."""
        modes = GRADERS[name].modes
        bind = partial(_judge_of, name, answer)
        return cls(name, bind({}), (answer,), modes=modes, mode=modes[0], bind=bind)

    def configured(self, arguments: Mapping[str, Any], timeout_seconds: float) -> "GradedReward":
        """Returns the reward with the settings of the config; raises SettingError for an argument that it has not.

        `mode` is known to all graders with more than one; the other arguments are the grader's own options.
        """
        if arguments and self.bind is None:
            raise SettingError(
                f"rewards.arguments of the task's grader {self.name!r} may set nothing, got {dict(arguments)}"
            )
        mode = arguments.get("mode", self.mode.value)
        if mode not in self.modes:
            raise SettingError(f"mode of the grader {self.name!r} must be {' or '.join(self.modes)}, got {mode!r}")
        options = {key: value for key, value in arguments.items() if key != "mode"}
        configured = replace(self, mode=GradeMode(mode), timeout_seconds=timeout_seconds)
        if not options or self.bind is None:
            return configured
        try:
            return replace(configured, judge=self.bind(options))
        except OptionError as error:
            message = f"rewards.arguments of the task's grader {self.name!r} may set `mode` and its options: {error}"
            raise SettingError(message) from error

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises MissingColumnError where the data lacks a column that the grader reads."""
        for choice in self.columns:
            choice.find(columns)

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        """Returns one part a sample, in order."""
        pairs = zip(group.samples, completions, strict=True)
        return await asyncio.gather(*(self._part(group, sample.index, text) for sample, text in pairs))

    async def _part(self, group: Group, sample_index: int, completion: str) -> RewardPart:
        place = place_of(self.name, group.prompt.prompt_id, sample_index)
        try:
            score = await self._worker.run(partial(self.judge, completion, group.prompt.columns, self.mode))
        except Exception as error:  # noqa: BLE001 - the boundary where a sample that cannot be judged becomes data
            return failed_part(error, place)
        return part_of(score, place)


def _judge_of(name: str, answer: ColumnChoice, options: Mapping[str, Any]) -> Judge:
    return partial(_judge_by_answer, load_grader(name, options), answer)


def _judge_by_answer(
    grader: Grader, answer: ColumnChoice, completion: str, row: Mapping[str, Any], mode: GradeMode
) -> float:
    gold = gold_text(row[answer.find(row)], f"column {answer.find(row)!r}")
    return grader(completion, gold, row_mode(row, mode)).score
