"""The verdict on one response."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from strop.errors import DataError


class GoldError(DataError, ValueError):
    """A gold answer that no response could equal."""


class UndecidedError(DataError, TimeoutError):
    """A grader ran out of its time: the sample has no score, which is not a 0."""


class GradeMode(StrEnum):
    """How much form counts; docs/grading.md says what that means to each grader."""

    STRICT = "strict"
    """The answer stands where the instruction asks for it, and is equal to the gold answer in value and kind."""
    LENIENT = "lenient"
    """The conventions of maths data sets: the answer may stand elsewhere, with a unit, as `x = 5`, in percent, or in
    another form that has the same value after expansion or scaling."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A score with its reason: what was taken as the answer, and why it counts or does not."""

    score: float
    """1 right, 0 wrong or no answer; some graders give parts of a point."""
    answer: str | None
    """The text that was taken as the answer; None where none was found."""
    mode: GradeMode
    reason: str
    """One sentence for a person who wonders about the score."""


Grader = Callable[[str, str, GradeMode], Grade]
"""From the response, the gold answer and the mode to the verdict. Raises ValueError for a gold that it cannot read."""

MODE_COLUMN = "grading_mode"
"""A row of a data set may name its mode in this column."""


def row_mode(row: Mapping[str, Any], default: GradeMode) -> GradeMode:
    """The mode that the row names, or else `default`; raises DataError where it names one that does not exist."""
    named = row.get(MODE_COLUMN)
    if named is None:
        return default
    if named not in tuple(GradeMode):
        raise DataError(f"column {MODE_COLUMN!r} must hold one of {', '.join(GradeMode)}, got {named!r}")
    return GradeMode(named)


def gold_text(value: Any, place: str) -> str:
    """A gold answer as text: numbers as written by Python, lists and objects as JSON.

    Raises GoldError, naming `place`, where there is none, and for numbers that are not finite.
    """
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise GoldError(f"{place} must hold a gold answer, got {value!r}", "Mend or remove the row.")
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
