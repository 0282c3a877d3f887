r"""The tasks of the graders that compare with one gold answer: columns, instruction, and how a right answer looks.

`gsm8k` are grade-school word problems (Cobbe et al., 2021), `math` competition problems (Hendrycks et al., 2021); the
other tasks are named after their grader and take any data with a question and a gold answer.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from strop.config.data import DataConfig
from strop.tasks.choice import answer_choice, prompt_choice
from strop.tasks.graded import GradedReward
from strop.tasks.grading.gsm8k import MARKER, gold_number
from strop.tasks.grading.math import gold_answer
from strop.tasks.grading.table import GRADERS
from strop.tasks.question import QuestionTask, chosen_instruction
from strop.tasks.sandbox.cases import read_cases

_STEPS = "Reason step by step, and "


def _boxed(gold: str) -> str:
    return rf"\boxed{{{gold_answer(gold)}}}"


def _lined(gold: str) -> str:
    return f"Answer: {gold_answer(gold)}"


def _as_given(gold: str) -> str:
    """The gold answer itself, or the first of a JSON list of alternatives."""
    if gold.startswith("["):
        try:
            texts = json.loads(gold)
        except ValueError:
            return gold
        return texts[0] if texts and isinstance(texts[0], str) else gold
    return gold


def _no_gold(gold: str) -> None:
    """Of a pattern no response that it matches is known, unless the data show one."""


def _tested(gold: str) -> None:
    """Of test cases no program that passes them is known, unless the data show one; unreadable ones raise GoldError."""
    read_cases(gold)


def _example(gold: str) -> str | None:
    """The first example that a JSON schema gives of itself; None where it gives none."""
    try:
        schema = json.loads(gold)
    except ValueError:
        return None
    examples = schema.get("examples") if isinstance(schema, dict) else None
    return json.dumps(examples[0]) if examples else None


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """How a task puts its question, and how a right response looks."""

    instruction: str
    respond: Callable[[str], str | None]
    """From the gold answer to a response that must score 1; None where none is known."""
    prompt_columns: tuple[str, ...] = ("question", "prompt", "problem")


TASKS: dict[str, AnswerTask] = {
    "gsm8k": AnswerTask(
        f"Work it out step by step. Put the final number alone on the last line, behind {MARKER}, like: {MARKER} 7",
        lambda gold: f"{MARKER} {gold_number(gold)}",
        ("question",),
    ),
    "math": AnswerTask(_STEPS + r"give the final answer inside \boxed{}.", _boxed, ("problem", "question")),
    "math_verify": AnswerTask(_STEPS + r"give the final answer inside \boxed{}.", _boxed, ("problem", "question")),
    "final_answer": AnswerTask(_STEPS + "end with a line `Answer: ` and the answer alone.", _lined),
    "choice": AnswerTask(_STEPS + "end with a line `Answer: ` and the letter of your choice.", _lined),
    "exact": AnswerTask("", _as_given),
    "f1": AnswerTask("", _as_given),
    "numeric": AnswerTask(_STEPS + "end with a line `Answer: ` and the number alone.", _lined),
    "regex": AnswerTask("", _no_gold),
    "json_schema": AnswerTask("Answer with JSON alone.", _example),
    "code": AnswerTask("Think it through, then write one Python program between ```python and ```.", _tested),
}


def answer_task(name: str, config: DataConfig) -> QuestionTask:
    """Builds the task `name` of the table from the `data` section."""
    task = TASKS[name]
    answer = answer_choice(config, *GRADERS[name].gold_columns)
    return QuestionTask(
        name=name,
        prompt=prompt_choice(config, *task.prompt_columns),
        answer=answer,
        instruction=chosen_instruction(config, task.instruction),
        respond=task.respond,
        rewards=(GradedReward.by_answer(name, answer),),
    )
