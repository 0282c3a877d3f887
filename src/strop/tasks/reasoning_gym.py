"""reasoning_gym:<name>: generated puzzles, scored by the scorer of their generator.

The answer is what stands between `<answer>` and `</answer>`, behind the thought. The scorer needs the row's
`metadata`; scores lie between 0 and 1, some generators give parts of a point. A few puzzles have no gold answer.
"""

from collections.abc import Mapping
from typing import Any

from strop.config.data import DataConfig
from strop.data.sources.reasoning_gym import check_generator_name
from strop.tasks.choice import ColumnChoice, answer_choice, prompt_choice
from strop.tasks.graded import GradedReward
from strop.tasks.grading import GradeMode
from strop.tasks.grading.extract import after_thought, last_tagged
from strop.tasks.question import QuestionTask, chosen_instruction

TAG = "answer"
INSTRUCTION = f"Think it through, then write the final answer between <{TAG}> and </{TAG}>."


def reasoning_gym_task(generator: str, config: DataConfig) -> QuestionTask:
    """Builds the task of a generator; raises DataError with the nearest name where there is none of that name."""
    check_generator_name(generator)
    answer = answer_choice(config, "answer")
    metadata = ColumnChoice("task reasoning_gym", None, ("metadata",))
    return QuestionTask(
        name=f"reasoning_gym:{generator}",
        prompt=prompt_choice(config, "question"),
        answer=answer,
        instruction=chosen_instruction(config, INSTRUCTION),
        respond=lambda gold: f"<{TAG}>{gold}</{TAG}>",
        rewards=(GradedReward(generator, _Scorer(generator, answer), (answer, metadata)),),
    )


class _Scorer:
    """Calls the generator's own scorer with the answer and the row."""

    def __init__(self, generator: str, answer: ColumnChoice) -> None:
        from reasoning_gym import get_score_answer_fn

        self._score = get_score_answer_fn(generator)
        self._answer = answer

    def __call__(self, completion: str, row: Mapping[str, Any], mode: GradeMode) -> float:
        answer = last_tagged(after_thought(completion), TAG)
        if not answer:
            return 0.0
        entry = {"question": row.get("question"), "answer": row[self._answer.find(row)], "metadata": row["metadata"]}
        return float(self._score(answer, entry))
