"""reasoning_gym:<name>: generated puzzles, scored by the scorer of their generator.

The answer is what stands between `<answer>` and `</answer>`, behind the thought. The scorer needs the row's
`metadata`; scores lie between 0 and 1, some generators give parts of a point. A few puzzles have no gold answer.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from strop.config.data import DataConfig
from strop.data.sources.reasoning_gym import check_generator_name
from strop.tasks.choice import ColumnChoice, answer_choice, prompt_choice
from strop.tasks.graded import GradedReward
from strop.tasks.grading import GradeMode
from strop.tasks.judges import PUZZLE_TAG, puzzle
from strop.tasks.question import QuestionTask, chosen_instruction

INSTRUCTION = f"Think it through, then write the final answer between <{PUZZLE_TAG}> and </{PUZZLE_TAG}>."


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
        respond=lambda gold: f"<{PUZZLE_TAG}>{gold}</{PUZZLE_TAG}>",
        rewards=(
            GradedReward(generator, partial(puzzle, generator), partial(_read_entry, answer), (answer, metadata)),
        ),
        every_row_has_gold=False,
    )


def _read_entry(
    answer: ColumnChoice, completion: str, row: Mapping[str, Any], mode: GradeMode
) -> tuple[str, dict[str, Any], GradeMode]:
    entry = {"question": row.get("question"), "answer": row[answer.find(row)], "metadata": row["metadata"]}
    return completion, entry, mode
