"""The verdict on one response."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
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


def gold_text(value: Any, place: str, *, may_be_json: bool = False) -> str:
    """A gold answer as text: numbers as written by Python; where it may be JSON, lists and objects as that.

    Raises GoldError, naming `place`, for any other kind (a boolean too, which nobody can know the words of), a blank
    text and a number that is not finite.
    """
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, bool):
        written = json.dumps(value)
        raise GoldError(
            f"{place} must hold a gold answer as text or number, got the boolean {written}",
            'Write the text that a response has to be, such as "yes".',
        )
    if isinstance(value, int) or (isinstance(value, float | Decimal) and math.isfinite(value)):
        return str(value)
    if may_be_json and isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    kinds = "a text, a finite number, a list or an object" if may_be_json else "a text or a finite number"
    got = (
        "an empty text" if isinstance(value, str) else "None" if value is None else f"{type(value).__name__} {value!r}"
    )
    raise GoldError(f"{place} must hold a gold answer, {kinds}, got {got[:80]}", "Mend or remove the row.")
