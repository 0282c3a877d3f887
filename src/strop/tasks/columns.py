"""columns: rows that a reward function of the user's judges.

The question is in `prompt` or else `question`, or wherever the config says; there is no grader of its own. A gold
answer is known only where `data.answer_column` names it: it is then shown to the rewards before training.
"""

from strop.config.data import DataConfig
from strop.tasks.choice import answer_choice, prompt_choice
from strop.tasks.question import QuestionTask, chosen_instruction


def columns_task(config: DataConfig) -> QuestionTask:
    """Builds the task from the `data` section."""
    return QuestionTask(
        name="columns",
        prompt=prompt_choice(config, "prompt", "question"),
        answer=None if config.answer_column is None else answer_choice(config),
        instruction=chosen_instruction(config, ""),
        respond=str,
        rewards=(),
    )
