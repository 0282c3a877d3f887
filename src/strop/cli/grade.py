"""`strop grade`: scores answers from a file, so that a grader can be tried before it trains anything."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from strop.tasks.grading import Grade, Grader


@dataclass(frozen=True, slots=True)
class GradeRow:
    """One line of the file: which grader, what was answered, what is right, and the score it should get."""

    line: int
    scorer: str
    response: str
    gold: str
    mode: str
    score: float | None


def grade(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="Rows with scorer, response, gold; mode and score if you like.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 where a score differs from the row's own `score`.")
    ] = False,
    lenient: Annotated[bool, typer.Option("--lenient", help="The mode of rows that name none; else strict.")] = False,
) -> None:
    """Score the answers in a file.

    Prints a JSON line a row with score, mode, extracted answer and reason.
    """
    num_rows = num_wrong = 0
    for row in read_rows(file, "lenient" if lenient else "strict", need_score=check):
        verdict = _grade_row(file, row)
        agrees = row.score is None or row.score == verdict.score
        num_rows, num_wrong = num_rows + 1, num_wrong + (not agrees)
        typer.echo(json.dumps(_report(row, verdict, agrees if check else None), ensure_ascii=False))
    if check:
        typer.echo(f"{num_rows - num_wrong} of {num_rows} rows have the score they should", err=True)
    if check and num_wrong:
        raise typer.Exit(1)


def _report(row: GradeRow, verdict: "Grade", agrees: bool | None) -> dict[str, Any]:
    report = {
        "line": row.line,
        "scorer": row.scorer,
        "score": verdict.score,
        "mode": verdict.mode,
        "answer": verdict.answer,
        "reason": verdict.reason,
    }
    return report if agrees is None else {**report, "expected": row.score, "agrees": agrees}


def _graders() -> "dict[str, Grader]":
    from strop.tasks.grading import grade_gsm8k, grade_math

    return {"gsm8k": grade_gsm8k, "math": grade_math}


def _grade_row(file: Path, row: GradeRow) -> "Grade":
    """The verdict on one row; raises DataError with its line where the grader or the gold answer is unusable."""
    from strop.errors import DataError
    from strop.tasks.grading import GradeMode

    graders = _graders()
    if row.scorer not in graders:
        raise DataError(f"{file}, line {row.line}: scorer must be one of {', '.join(graders)}, got {row.scorer!r}")
    if row.mode not in list(GradeMode):
        raise DataError(f"{file}, line {row.line}: mode must be one of {', '.join(GradeMode)}, got {row.mode!r}")
    try:
        return graders[row.scorer](row.response, row.gold, GradeMode(row.mode))
    except ValueError as error:
        raise DataError(f"{file}, line {row.line}: {error}") from error


def read_rows(file: Path, default_mode: str, *, need_score: bool) -> Iterator[GradeRow]:
    """Yields the rows of a JSONL file, blank lines left out; raises DataError with the line of a bad one."""
    from strop.errors import DataError

    if not file.is_file():
        raise DataError(f"the file to grade must exist, got {file} ({file.absolute()} is no file)")
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _read_row(f"{file}, line {number}", number, line, default_mode, need_score)


def _read_row(place: str, number: int, line: str, default_mode: str, need_score: bool) -> GradeRow:
    from strop.errors import DataError

    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place} must be a JSON object: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{place} must be a JSON object, got {line.strip()[:80]}")
    for key in ("scorer", "response", "gold"):
        if not isinstance(row.get(key), str):
            raise DataError(f"{place}: {key} must be text, got {row.get(key)!r}; keys found: {', '.join(row)}")
    score = row.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float | None) or (need_score and score is None):
        raise DataError(f"{place}: score must be a number, got {score!r}")
    return GradeRow(number, row["scorer"], row["response"], row["gold"], row.get("mode", default_mode), score)
