"""The verdict on one response."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from strop.errors import DataError


class GoldError(DataError, ValueError):
    """A gold answer that no response could equal."""


class GradeMode(StrEnum):
    """How much form counts."""

    STRICT = "strict"
    """The answer must stand where the instruction asks for it, and nothing beside it."""
    LENIENT = "lenient"
    """The answer may stand elsewhere, with a unit, as `x = 5`, or in percent."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A score with its reason: what was taken as the answer, and why it counts or does not."""

    score: float
    """1 right, 0 wrong or no answer."""
    answer: str | None
    """The text that was taken as the answer; None where none was found."""
    mode: GradeMode
    reason: str
    """One sentence for a person who wonders about the score."""


Grader = Callable[[str, str, GradeMode], Grade]
"""From the response, the gold answer and the mode to the verdict. Raises ValueError for a gold that it cannot read."""
