r"""math: competition problems (Hendrycks et al., 2021), answered in `\boxed{...}`.

Column `problem`, and `answer` or else `solution`; of a whole solution the last box is the gold answer.
"""

from strop.config.data import DataConfig
from strop.tasks.choice import answer_choice, prompt_choice
from strop.tasks.graded import GradedReward
from strop.tasks.grading.math import gold_answer
from strop.tasks.question import QuestionTask, chosen_instruction

INSTRUCTION = r"Reason step by step, and give the final answer inside \boxed{}."


def math_task(config: DataConfig) -> QuestionTask:
    """Builds the task from the `data` section."""
    answer = answer_choice(config, "answer", "solution")
    return QuestionTask(
        name="math",
        prompt=prompt_choice(config, "problem", "question"),
        answer=answer,
        instruction=chosen_instruction(config, INSTRUCTION),
        respond=lambda gold: rf"\boxed{{{gold_answer(gold)}}}",
        rewards=(GradedReward.by_answer("math", answer),),
    )
