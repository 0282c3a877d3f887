"""The gold answer is a regular expression, in the syntax of the package `regex` (that of Python, and more).

A pattern that backtracks without end is stopped after `timeout_seconds`: whether it matches is then not known, and the
sample has no score.
"""

from functools import lru_cache

import regex
from pydantic import Field

from strop.tasks.grading.grade import GoldError, Grade, GradeMode, UndecidedError
from strop.tasks.grading.options import GraderOptions
from strop.tasks.grading.place import Place, missing, placed_answer


class RegexOptions(GraderOptions):
    """Where the pattern is looked for, and how."""

    place: Place = "response"
    """Where the answer stands in the response."""
    ignore_case: bool = False
    """Whether case does not count."""
    timeout_seconds: float = Field(default=1.0, gt=0, le=60)
    """Time limit of the search."""


_DEFAULTS = RegexOptions()


def grade_regex(
    response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: RegexOptions = _DEFAULTS
) -> Grade:
    """Grades by a match: STRICT, of the whole answer; LENIENT, of any part of it.

    Raises GoldError for a gold answer that is no pattern, or one that matches an empty answer; UndecidedError where the
    time limit is reached.
    """
    pattern = _compiled(gold, options.ignore_case)
    answer = placed_answer(response, options.place)
    if answer is None:
        return Grade(0.0, None, mode, missing(options.place))
    search = pattern.fullmatch if mode is GradeMode.STRICT else pattern.search
    try:
        match = search(answer, timeout=options.timeout_seconds)
    except TimeoutError as error:
        raise UndecidedError(
            f"the pattern {gold[:80]!r} must give an answer within {options.timeout_seconds:g} seconds, and did not",
            "Write it without nested repetitions.",
        ) from error
    if match is None:
        where = "the whole answer" if mode is GradeMode.STRICT else "any part of the answer"
        return Grade(0.0, answer, mode, f"the pattern does not match {where}")
    return Grade(1.0, match.group(), mode, "the pattern matches")


@lru_cache(maxsize=1024)
def _compiled(gold: str, ignore_case: bool) -> "regex.Pattern[str]":
    try:
        pattern = regex.compile(gold, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise GoldError(f"a gold answer must be a regular expression, got {gold[:80]!r}: {error}") from error
    if not gold:
        raise GoldError("a gold answer must be a regular expression, got an empty text")
    return pattern
