"""gsm8k: grade-school word problems (Cobbe et al., 2021), answered by a number behind `####`.

Columns `question` and `answer`, as the data set has them; the answer may be a whole solution or its number.
"""

from strop.config.data import DataConfig
from strop.tasks.choice import answer_choice, prompt_choice
from strop.tasks.graded import GradedReward
from strop.tasks.grading.gsm8k import MARKER, gold_number
from strop.tasks.question import QuestionTask, chosen_instruction

INSTRUCTION = (
    f"Work it out step by step. Put the final number alone on the last line, behind {MARKER}, like: {MARKER} 7"
)


def gsm8k_task(config: DataConfig) -> QuestionTask:
    """Builds the task from the `data` section."""
    answer = answer_choice(config, "answer")
    return QuestionTask(
        name="gsm8k",
        prompt=prompt_choice(config, "question"),
        answer=answer,
        instruction=chosen_instruction(config, INSTRUCTION),
        respond=lambda gold: f"{MARKER} {gold_number(gold)}",
        rewards=(GradedReward.by_answer("gsm8k", answer),),
    )
