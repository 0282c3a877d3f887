"""Graders inside a child process. Runs in children of `isolation`; imports nothing heavy before it must.

A verdict comes back as JSON data: score, answer, mode and reason.
"""

from collections.abc import Callable, Mapping
from typing import Any

from strop.tasks.grading.extract import after_thought, last_tagged
from strop.tasks.grading.grade import Grade, GradeMode
from strop.tasks.grading.table import load_grader

Verdict = tuple[float, str | None, str, str]
PUZZLE_TAG = "answer"


def grading(name: str, options: Mapping[str, Any]) -> Callable[[str, str, GradeMode], Verdict]:
    """The factory of calls (response, gold, mode) to the grader called `name`."""
    grader = load_grader(name, options)

    def call(response: str, gold: str, mode: GradeMode) -> Verdict:
        grade = grader(response, gold, mode)
        return grade.score, grade.answer, grade.mode.value, grade.reason

    return call


def puzzle(generator: str) -> Callable[[str, Mapping[str, Any], GradeMode], Verdict]:
    """The factory of calls (response, entry, mode) to the scorer of a reasoning_gym generator."""
    from reasoning_gym import get_score_answer_fn

    score = get_score_answer_fn(generator)

    def call(response: str, entry: Mapping[str, Any], mode: GradeMode) -> Verdict:
        answer = last_tagged(after_thought(response), PUZZLE_TAG)
        if not answer:
            return 0.0, answer, mode.value, f"nothing between <{PUZZLE_TAG}> and </{PUZZLE_TAG}>"
        return float(score(answer, entry)), answer, mode.value, f"by the scorer of {generator}"

    return call


def read_verdict(value: Any) -> Grade:
    """The verdict that came back from a child."""
    score, answer, mode, reason = value
    return Grade(score, answer, GradeMode(mode), reason)
