"""A task's own grader as a reward function: judged in child processes that all graders share (`isolation`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from strop.data.errors import SettingError
from strop.errors import DataError
from strop.records import Group, RewardPart
from strop.tasks.choice import ColumnChoice
from strop.tasks.grading import GradeMode, gold_text, row_mode
from strop.tasks.grading.code import CodeOptions
from strop.tasks.grading.grade import GoldError
from strop.tasks.grading.options import OptionError
from strop.tasks.grading.table import GRADERS, load_grader
from strop.tasks.isolation.limits import CallLimits, default_processes
from strop.tasks.isolation.outcome import Factory, Outcome
from strop.tasks.isolation.pool import Pool, shared_pool
from strop.tasks.judges import grading, read_verdict
from strop.tasks.parts import failed_part, lost_part, part_of, place_of
from strop.tasks.returned import read_number

ReadRow = Callable[[str, Mapping[str, Any], GradeMode], tuple[Any, ...]]
"""From a completion, its data row and the mode to the arguments of the grader. It may raise: the sample is invalid."""


@dataclass(frozen=True)
class GradedReward:
    """Judges every sample by a grader and the row's gold answer; implements `RewardFunction`.

    A grader that raises, crashes or runs over its time or memory makes that sample invalid, with the reason.
    """

    name: str
    factory: Factory
    """Gives the grader in a child, where it returns a verdict (see `judges`)."""
    read_row: ReadRow
    columns: tuple[ColumnChoice, ...]
    """The columns that the grader reads."""
    modes: tuple[GradeMode, ...] = (GradeMode.STRICT,)
    """The modes that the grader knows."""
    mode: GradeMode = GradeMode.STRICT
    limits: CallLimits = field(default_factory=lambda: CallLimits(num_processes=default_processes()))
    bind: Callable[[Mapping[str, Any]], Factory] | None = None
    """From the grader's own options to its factory; None where it has none."""

    @classmethod
    def by_answer(cls, name: str, answer: ColumnChoice) -> "GradedReward":
        """The reward of the grader called `name`, which compares with one gold answer."""
        modes = GRADERS[name].modes
        bind = partial(_bound_grader, name)
        read_row = partial(_read_answer, answer, GRADERS[name].gold_may_be_json)
        return cls(name, bind({}), read_row, (answer,), modes=modes, mode=modes[0], bind=bind)

    def configured(self, arguments: Mapping[str, Any], limits: CallLimits) -> "GradedReward":
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
        if self.name == "code":
            _check_seconds(options, limits)
        configured = replace(self, mode=GradeMode(mode), limits=limits)
        if not options or self.bind is None:
            return configured
        try:
            return replace(configured, factory=self.bind(options))
        except OptionError as error:
            message = f"rewards.arguments of the task's grader {self.name!r} may set `mode` and its options: {error}"
            raise SettingError(message) from error

    def warm(self) -> None:
        """Starts the processes and imports the grader in them, without waiting for it."""
        self._pool.warm(self.factory)

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises MissingColumnError where the data lacks a column that the grader reads."""
        for choice in self.columns:
            choice.find(columns)

    def check_row(self, row: Mapping[str, Any]) -> None:
        """Raises GoldError where the grader cannot read the row's gold answer, or its mode; cheap: nothing is judged.

        The grader reads the gold answer before it looks at a response, so an empty one is shown to it, in this process.
        """
        if self.bind is None:
            return
        try:
            _local(self.factory)(*self.read_row("", row, self.mode))
        except (DataError, ValueError, TimeoutError, OverflowError, RecursionError) as error:
            raise GoldError(str(error) or type(error).__name__) from error

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        """Returns one part a sample, in order."""
        parts: dict[int, RewardPart] = {}
        calls: dict[int, tuple[Any, ...]] = {}
        for number, (sample, completion) in enumerate(zip(group.samples, completions, strict=True)):
            try:
                calls[number] = self.read_row(completion, group.prompt.columns, self.mode)
            except Exception as error:  # noqa: BLE001 - the boundary where a row that cannot be judged becomes data
                parts[number] = failed_part(error, self._place(group, sample.index))
        outcomes = await self._pool.run(self.factory, list(calls.values()), timeout_seconds=self.limits.timeout_seconds)
        for number, outcome in zip(calls, outcomes, strict=True):
            parts[number] = _part(outcome, self._place(group, group.samples[number].index))
        return [parts[number] for number in range(len(parts))]

    @property
    def _pool(self) -> Pool:
        return shared_pool(self.limits.num_processes, self.limits.memory_bytes)

    def _place(self, group: Group, sample_index: int) -> str:
        return place_of(self.name, group.prompt.prompt_id, sample_index)


@cache
def _local(factory: Factory) -> Callable[..., Any]:
    return factory()


def _check_seconds(options: Mapping[str, Any], limits: CallLimits) -> None:
    """Raises SettingError where a slow program would be killed from outside: invalid, where it should score 0."""
    total = options.get("total_seconds", CodeOptions.model_fields["total_seconds"].default)
    if isinstance(total, int | float) and total >= limits.timeout_seconds:
        raise SettingError(
            f"total_seconds of the grader 'code' must be below rewards.timeout_seconds ({limits.timeout_seconds:g}), "
            f"got {total:g}; lower it in rewards.arguments, or raise rewards.timeout_seconds"
        )


def _bound_grader(name: str, options: Mapping[str, Any]) -> Factory:
    load_grader(name, options)  # refuses wrong options here, before a child would
    return partial(grading, name, dict(options))


def _read_answer(
    answer: ColumnChoice, may_be_json: bool, completion: str, row: Mapping[str, Any], mode: GradeMode
) -> tuple[str, str, GradeMode]:
    column = answer.find(row)
    return completion, gold_text(row[column], f"column {column!r}", may_be_json=may_be_json), row_mode(row, mode)


def _part(outcome: Outcome, place: str) -> RewardPart:
    if outcome.error is not None:
        return lost_part(outcome.error, place, outcome.seconds)
    return part_of(read_number(read_verdict(outcome.value).score), place, outcome.seconds)
