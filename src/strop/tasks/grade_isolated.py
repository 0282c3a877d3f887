"""Grades rows in killable child processes, in batches, as training does; answers come in the order of the rows.

    rows --> batch, batch --> children: grade_row(row) --> verdict, or what is wrong with the row

Reading goes one batch ahead of the answers. An error waits for its turn, so every row before it is answered.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import DataError
from strop.tasks.grade_rows import GradeRow, grade_row, read_grade_rows, read_objects
from strop.tasks.grading.code import CodeOptions
from strop.tasks.grading.grade import Grade, GradeMode
from strop.tasks.isolation.limits import CallLimits, default_processes
from strop.tasks.isolation.outcome import Outcome
from strop.tasks.isolation.pool import Pool, shared_pool
from strop.tasks.judges import read_verdict

_ROWS_AT_ONCE = 1024
_SECONDS_BEYOND = 20.0
"""A grader of programs ends them itself; this is for all else that it does."""


def grade_rows(
    rows: Path | Iterable[Mapping[str, Any]],
    default_mode: GradeMode | None = None,
    *,
    need_score: bool = False,
    limits: CallLimits | None = None,
) -> Iterator[tuple[GradeRow, Grade]]:
    """Yields each row of a JSONL file, or of objects as it would hold them, with its grade.

    Raises DataError naming the first row that cannot be read or graded, that takes more than `limits` (a minute and
    8 GiB where none are given), or that lacks a score where one is needed.
    """
    limits = limits or CallLimits(num_processes=default_processes())
    pool = shared_pool(limits.num_processes, limits.memory_bytes)
    read = read_grade_rows(rows, need_score=need_score) if isinstance(rows, Path) else read_objects(rows, need_score)
    waiting: deque[_Batch | DataError] = deque()
    try:
        for item in _batches(read):
            waiting.append(item if isinstance(item, DataError) else _Batch.begin(pool, item, default_mode, limits))
            if len(waiting) > 1:
                yield from _answers(waiting.popleft())
        while waiting:
            yield from _answers(waiting.popleft())
    finally:
        for batch in waiting:
            if isinstance(batch, _Batch):
                batch.future.cancel()


def row_grading() -> Callable[[GradeRow, GradeMode | None], dict[str, Any]]:
    """The factory of calls that grade a row in a child."""

    def call(row: GradeRow, default_mode: GradeMode | None) -> dict[str, Any]:
        try:
            grade = grade_row(row, default_mode)
        except DataError as error:
            return {"fault": error.message, "remedy": error.remedy}
        return {"verdict": (grade.score, grade.answer, grade.mode.value, grade.reason)}

    return call


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: list[GradeRow]
    future: "Future[list[Outcome]]"

    @classmethod
    def begin(cls, pool: Pool, rows: list[GradeRow], default_mode: GradeMode | None, limits: CallLimits) -> "_Batch":
        calls = [(row, default_mode) for row in rows]
        seconds = max(limits.timeout_seconds, *(_own_seconds(row) for row in rows))
        return cls(rows, pool.submit(row_grading, calls, timeout_seconds=seconds))


def _batches(rows: Iterator[GradeRow]) -> Iterator[list[GradeRow] | DataError]:
    """The rows in batches; an error of reading comes last, as an item."""
    batch: list[GradeRow] = []
    failure: DataError | None = None
    while failure is None:
        try:
            row = next(rows, None)
        except DataError as error:
            row, failure = None, error
        if row is not None:
            batch.append(row)
        if batch and (row is None or len(batch) == _ROWS_AT_ONCE):
            yield batch
            batch = []
        if row is None:
            break
    if failure is not None:
        yield failure


def _answers(item: "_Batch | DataError") -> Iterator[tuple[GradeRow, Grade]]:
    if isinstance(item, DataError):
        raise item
    for row, outcome in zip(item.rows, item.future.result(), strict=True):
        if outcome.error is not None:
            raise DataError(f"{row.place}: {outcome.error}")
        if "fault" in outcome.value:
            raise DataError(outcome.value["fault"], outcome.value["remedy"])
        yield row, read_verdict(outcome.value["verdict"])


def _own_seconds(row: GradeRow) -> float:
    """How long a row allows its programs to run, with something to spare; 0 where it runs none."""
    if row.scorer != "code":
        return 0.0
    total = json.loads(row.arguments).get("total_seconds", CodeOptions.model_fields["total_seconds"].default)
    return total + _SECONDS_BEYOND if isinstance(total, int | float) else 0.0
