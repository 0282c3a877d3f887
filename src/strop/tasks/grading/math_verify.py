r"""The grader `math`, with the package math-verify (which uses sympy) behind it as the last resort.

It is asked in LENIENT mode alone, and only about two formulas in which something is left that is not worked out here,
such as a logarithm or an integral: where our own algebra says that two answers differ, they differ. Importing it takes
seconds. Its time limit works by a signal, so in the main thread of a process alone; elsewhere the limit of the process
that a grader runs in must hold.
"""

import re
import threading
from functools import partial

from pydantic import Field

from strop.errors import ConfigError
from strop.tasks.grading.grade import Grade, GradeMode
from strop.tasks.grading.math import MathOptions, boxed_answer, gold_answer, grade_equality

_MAX_CHARACTERS = 200
_COSTLY = re.compile(r"\^\s*\{[^{}]*\^|\^\s*\{?\s*\d{4,}|\d{30,}|!\s*!")


class MathVerifyOptions(MathOptions):
    """The options of `math`, and the time limit of math-verify."""

    timeout_seconds: int = Field(default=3, ge=1)
    """Time limit of reading and of comparing two formulas."""


_DEFAULTS = MathVerifyOptions()


def grade_math_verify(
    response: str, gold: str, mode: GradeMode = GradeMode.LENIENT, options: MathVerifyOptions = _DEFAULTS
) -> Grade:
    """Grades as `math` does, and asks math-verify where our own algebra cannot tell.

    Raises GoldError for an empty gold answer, ConfigError where math-verify is not installed.
    """
    gold = gold_answer(gold)
    answer = boxed_answer(response, mode, options)
    if not answer:
        return Grade(0.0, answer, mode, "the last box is empty" if answer == "" else "no closed box in the response")
    return grade_equality(answer, gold, mode, partial(verified, timeout_seconds=options.timeout_seconds))


def verified(answer: str, gold: str, *, timeout_seconds: int) -> bool:
    """Whether math-verify takes two formulas for equal; formulas that may cost it minutes are not shown to it."""
    if max(len(answer), len(gold)) > _MAX_CHARACTERS or _COSTLY.search(answer) or _COSTLY.search(gold):
        return False
    try:
        from math_verify import parse, verify
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the grader 'math_verify' needs the package 'math-verify', which is not installed",
            "Run `pip install 'strop[graders]'`.",
        ) from error
    limit = timeout_seconds if threading.current_thread() is threading.main_thread() else None
    one, other = (parse(f"${text}$", parsing_timeout=limit) for text in (answer, gold))
    return bool(one and other and verify(other, one, timeout_seconds=limit))
