"""The test of the rewards before training: on gold answers and empty ones, of every task, train and held-out rows."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from strop.config.data import DataConfig
from strop.data import PromptTable
from strop.data.errors import SettingError
from strop.errors import DataError
from strop.tasks import GoldReport, score_gold
from strop.trainers.inputs import Inputs

NUM_SHOWN_ROWS = 5
NUM_SHOWN_WARNINGS = 3


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What was tested, and what a person should look at."""

    training: tuple[GoldReport, ...]
    """One a task."""
    evaluation: tuple[GoldReport, ...]

    @property
    def reports(self) -> tuple[GoldReport, ...]:
        """All reports."""
        return (*self.training, *self.evaluation)

    def lines(self) -> list[str]:
        """What was tested, in lines for a person to read."""
        failures = [failure for report in self.reports for failure in report.failures]
        warnings = [warning for report in self.reports for warning in report.warnings]
        lines = [f"self-test: {report.line}" for report in self.training]
        lines += [f"self-test of the evaluation: {report.line}" for report in self.evaluation]
        if failures:
            lines.append(f"note: {_shown(failures, 'gold answers fail their grader')}")
        return lines + [f"note: {warning}" for warning in warnings[:NUM_SHOWN_WARNINGS]]


def self_test(inputs: Inputs, data: DataConfig) -> SelfTest:
    """Tests the rewards before a run.

    Raises DataError, showing rows, where a grader is right about too few of its gold answers, and SettingError where
    a function of the user's failed in every call.
    """
    tested = asyncio.run(_test(inputs, data.self_test_rows))
    for report in tested.reports:
        if report.broken:
            raise SettingError("\n".join(report.broken), "Mend the function, or leave the reward out.")
        if report.passed_share < data.self_test_share:
            key = inputs.tasks[report.task].key
            raise DataError(
                f"at least {data.self_test_share:.1%} of the rows of {report.task} must have a gold answer that its "
                f"grader gives 1, and 0 to an empty one, got {report.passed_share:.1%} of {report.num_graded} rows: "
                f"{_shown(report.failures, 'failures')}",
                f"Check {key}.answer_column and {key}.task, mend the rows, or lower data.self_test_share.",
            )
    return tested


async def _test(inputs: Inputs, max_rows: int | None) -> SelfTest:
    """Both tables in one event loop, one after another."""
    training = await _test_table(inputs, inputs.training, max_rows)
    evaluation = () if inputs.evaluation is None else await _test_table(inputs, inputs.evaluation, max_rows)
    return SelfTest(training, evaluation)


async def _test_table(inputs: Inputs, table: PromptTable, max_rows: int | None) -> tuple[GoldReport, ...]:
    reports = []
    for name, part in table.by_task().items():
        judged = inputs.tasks[name]
        places = {rendered.row.row_id: rendered.row.where for rendered in part.rows}
        reports.append(await score_gold(judged.task, judged.rewards, part.prompts(), max_rows=max_rows, places=places))
    return tuple(reports)


def _shown(failures: Sequence[str], what: str) -> str:
    shown = "".join(f"\n  {failure}" for failure in failures[:NUM_SHOWN_ROWS])
    more = f"\n  and {len(failures) - NUM_SHOWN_ROWS} more" if len(failures) > NUM_SHOWN_ROWS else ""
    return f"{len(failures)} {what}:{shown}{more}"
