"""Puzzles of reasoning_gym, scored by the scorer of their generator.

The answer is what stands between the last `<answer>` and `</answer>` behind the thought. Scores lie between 0 and 1.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import Field

from strop.tasks.grading.extract import after_thought, last_tagged
from strop.tasks.grading.grade import Grade, GradeMode
from strop.tasks.grading.options import GraderOptions

TAG = "answer"


class ReasoningGymOptions(GraderOptions):
    """The row that the scorer reads besides the answer."""

    generator: str
    """Name of the generator, such as `chain_sum`."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """The row's metadata."""
    question: str | None = None
    """The row's question."""


def grade_reasoning_gym(
    response: str, gold: str | None, mode: GradeMode = GradeMode.STRICT, *, options: ReasoningGymOptions
) -> Grade:
    """Grades by the generator's own scorer; there is one mode."""
    answer = last_tagged(after_thought(response), TAG)
    if not answer:
        return Grade(0.0, answer, mode, f"no answer between <{TAG}> and </{TAG}>")
    entry = {"question": options.question, "answer": gold, "metadata": options.metadata}
    return Grade(float(_scorer(options.generator)(answer, entry)), answer, mode, f"scored by {options.generator}")


@cache
def _scorer(generator: str) -> Callable[[str, dict[str, Any]], float]:
    from reasoning_gym import get_score_answer_fn

    score: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(generator)
    return score
