"""Grades rows of a file: which grader, what was answered, what is right.

    FILE.jsonl --read_grade_rows--> GradeRow --grade_row--> Grade        grade_isolated.py does both, in children

A row has `scorer`, `response` and `gold`, and may have `mode`, `arguments` (the grader's options), `score` (what it
should get) and `note` (for people). What cannot be read or graded is an error that names file and line.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from strop.errors import DataError, nearest_hint
from strop.tasks.grading.grade import Grade, GradeMode, Grader, gold_text
from strop.tasks.grading.options import OptionError
from strop.tasks.grading.table import GRADERS, load_grader
from strop.tasks.sandbox.client import SandboxError

KEYS = ("scorer", "response", "gold", "score", "mode", "arguments", "note")
"""What a row may have."""


@dataclass(frozen=True, slots=True)
class GradeRow:
    """One row: which grader, what was answered, what is right, and the score it should get."""

    place: str
    """File and line, for errors."""
    line: int
    """Counted from 1."""
    scorer: str
    response: str
    gold: str
    mode: GradeMode | None = None
    """None leaves it to the caller, and to the grader's default."""
    arguments: str = "{}"
    """The grader's options as JSON."""
    score: float | None = None


def grade_answer(
    scorer: str,
    response: str,
    gold: str,
    mode: GradeMode | None = None,
    arguments: str = "{}",
) -> Grade:
    """Grades one response by the grader called `scorer`; without a mode, by the grader's default.

    `arguments` are the grader's options as JSON. Raises OptionError for an unknown grader, mode or option, GoldError
    for a gold answer that the grader cannot read, UndecidedError where it runs out of time,
    SandboxError and NoSandboxError where programs cannot be run.
    """
    grader = _grader(scorer, arguments)
    modes = GRADERS[scorer].modes
    chosen = modes[0] if mode is None else mode
    if chosen not in modes:
        raise OptionError(f"mode of the grader {scorer!r} must be {' or '.join(modes)}, got {chosen.value!r}")
    return grader(response, gold, chosen)


def grade_row(row: GradeRow, default_mode: GradeMode | None = None) -> Grade:
    """Grades one row in its own mode, or else in `default_mode` where the grader knows it, or else in the grader's.

    Raises DataError, with file and line, where that is not possible.
    """
    mode = row.mode
    if mode is None and row.scorer in GRADERS and default_mode in GRADERS[row.scorer].modes:
        mode = default_mode
    try:
        return grade_answer(row.scorer, row.response, row.gold, mode, row.arguments)
    except (ValueError, TimeoutError, OverflowError, SandboxError) as error:
        raise DataError(f"{row.place}: {error}") from error


@lru_cache(maxsize=256)
def _grader(scorer: str, arguments: str) -> Grader:
    return load_grader(scorer, json.loads(arguments))


def read_grade_rows(file: Path, *, need_score: bool = False) -> Iterator[GradeRow]:
    """Yields the rows of a JSONL file, blank lines left out; raises DataError with the line of a bad one."""
    if not file.is_file():
        raise DataError(f"the file to grade must exist, got {file} ({file.absolute()} is no file)")
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                place = f"{file}, line {number}"
                yield _read_row(place, number, _read_object(place, line), need_score)


def read_objects(rows: Iterable[Mapping[str, Any]], need_score: bool = False) -> Iterator[GradeRow]:
    """Yields rows from objects as a file would hold them; raises DataError with the number of a bad one."""
    for number, row in enumerate(rows, start=1):
        yield _read_row(f"row {number}", number, row, need_score)


def _read_row(place: str, number: int, row: Mapping[str, Any], need_score: bool) -> GradeRow:
    for key in row:
        if key not in KEYS:
            raise DataError(f"{place}: a row must have no other keys than {', '.join(KEYS)}, got {_named(key)}")
    for key in ("scorer", "response"):
        if not isinstance(row.get(key), str):
            raise DataError(f"{place}: {key} must be text, got {row.get(key)!r}; keys found: {', '.join(row)}")
    if row["scorer"] not in GRADERS:
        hint = nearest_hint(row["scorer"], GRADERS)
        raise DataError(f"{place}: scorer must be one of {', '.join(GRADERS)}, got {row['scorer']!r}{hint}")
    score = row.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float | None) or (need_score and score is None):
        raise DataError(f"{place}: score must be a number, got {score!r}")
    return GradeRow(
        place=place,
        line=number,
        scorer=row["scorer"],
        response=row["response"],
        gold=gold_text(row.get("gold"), f"{place}: gold", may_be_json=GRADERS[row["scorer"]].gold_may_be_json),
        mode=_read_mode(place, row.get("mode")),
        arguments=_read_arguments(place, row.get("arguments", {})),
        score=score,
    )


def _named(key: Any) -> str:
    return f"{str(key)[:80]!r}{nearest_hint(str(key), KEYS)}"


def _read_object(place: str, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} must be a JSON object: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{place} must be a JSON object, got {str(row)[:80]}")
    return row


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _read_mode(place: str, mode: Any) -> GradeMode | None:
    if mode is None:
        return None
    if mode not in tuple(GradeMode):
        raise DataError(f"{place}: mode must be one of {', '.join(GradeMode)}, got {mode!r}")
    return GradeMode(mode)


def _read_arguments(place: str, arguments: Any) -> str:
    if not isinstance(arguments, dict):
        raise DataError(f"{place}: arguments must be an object of options, got {arguments!r}")
    return json.dumps(arguments, sort_keys=True)


def agrees(grade: Grade, expected: float | None) -> bool:
    """Whether a grade is the expected one, if any; parts of a point are compared to six digits."""
    return expected is None or math.isclose(grade.score, expected, abs_tol=1e-6)
