"""`strop grade`: scores answers from a file, so that a grader can be tried before it trains anything."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from strop.tasks.grade_rows import GradeRow
    from strop.tasks.grading import Grade


def grade(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl", help="Rows with scorer, response, gold; mode, arguments and score if you like."
        ),
    ],
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Exit 1 where a score differs from the row's own `score`, 2 where there are no rows."
        ),
    ] = False,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="The mode of rows that name none; else the grader's default.")
    ] = False,
) -> None:
    """Score the answers in a file.

    Prints a JSON line a row with score, mode, extracted answer and reason. A grader that runs out of its time or
    memory ends the command, with the row.
    """
    from strop import api
    from strop.errors import DataError
    from strop.tasks.grade_rows import agrees

    num_rows = num_wrong = 0
    for row, verdict in api.grade(file, lenient=lenient, need_score=check):
        is_right = agrees(verdict, row.score)
        num_rows, num_wrong = num_rows + 1, num_wrong + (not is_right)
        typer.echo(_line(_report(row, verdict, is_right if check else None)))
    if check and not num_rows:
        raise DataError(f"there must be rows to check, got none in {file}", "Leave --check out, or add rows.")
    if check:
        typer.echo(f"{num_rows - num_wrong} of {num_rows} rows have the score they should", err=True)
    if check and num_wrong:
        raise typer.Exit(1)


def _line(report: dict[str, Any]) -> str:
    """The report as JSON; what the output cannot show, such as half a character, is escaped."""
    text = json.dumps(report, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(report)
    return text


def _report(row: "GradeRow", verdict: "Grade", is_right: bool | None) -> dict[str, Any]:
    report = {
        "line": row.line,
        "scorer": row.scorer,
        "score": verdict.score,
        "mode": verdict.mode,
        "answer": verdict.answer,
        "reason": verdict.reason,
    }
    return report if is_right is None else {**report, "expected": row.score, "agrees": is_right}
