"""Gold responses that the data hold themselves, where none can be made from the gold answer.

From test cases no program follows that passes them, from a pattern no text that it matches. A column that the config
names shows one, so that such a grader is tried on its own rows before it trains.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from strop.config.data import DataConfig
from strop.tasks.choice import ColumnChoice
from strop.tasks.grading.code import last_program
from strop.tasks.grading.grade import GoldError
from strop.tasks.question import QuestionTask


@dataclass(frozen=True, kw_only=True)
class ShownGoldTask(QuestionTask):
    """A task whose rows show a response that must score 1."""

    gold_response: ColumnChoice
    shape: Callable[[str], str]
    """From the column's text to a response as the instruction asks for it."""

    def render_gold(self, row: Mapping[str, Any]) -> str | None:
        """The response that the row shows, the first of a list; None where it shows none.

        Raises what the task without it raises of a gold answer, MissingColumnError for a missing column, and GoldError
        for a response that is no text or blank.
        """
        super().render_gold(row)
        column = self.gold_response.find(row)
        shown = row[column]
        if isinstance(shown, (list, tuple)):
            shown = shown[0] if shown else None
        if shown is None:
            return None
        if not isinstance(shown, str) or not shown.strip():
            raise GoldError(f"column {column!r} must hold a gold response, a text, got {shown!r}"[:200])
        return self.shape(shown)


def with_gold_response(task: QuestionTask, config: DataConfig) -> QuestionTask:
    """The task as it is, or with the column of gold responses that the config names."""
    if config.gold_response_column is None:
        return task
    own = {part.name: getattr(task, part.name) for part in fields(task)}
    choice = ColumnChoice("data.gold_response_column", config.gold_response_column, ())
    return ShownGoldTask(**own, gold_response=choice, shape=_fenced if task.name == "code" else str)


def _fenced(text: str) -> str:
    """A program between fences; text that has a Python block already, and is no program as a whole, as it is.

    Of a JSON list of programs, the form of APPS, it is the first.
    """
    text = _first_text(text)
    if last_program(text) is not None and not _is_program(text):
        return text
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{text}\n{fence}"


def _first_text(text: str) -> str:
    if not text.startswith("["):
        return text
    try:
        texts = json.loads(text)
    except ValueError:
        return text
    return texts[0] if texts and isinstance(texts[0], str) else text


def _is_program(text: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
