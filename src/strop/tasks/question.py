"""Tasks that put one question: a column becomes chat messages, another one holds the gold answer.

A task is data: which columns, which instruction, how a right response looks, which rewards. The four kinds are
built by the short files beside this one, from the `data` section of the config.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from strop.config.data import DataConfig
from strop.records import Message
from strop.tasks.choice import ColumnChoice
from strop.tasks.graded import GradedReward
from strop.tasks.grading.grade import gold_text
from strop.tasks.grading.table import GRADERS


@dataclass(frozen=True)
class QuestionTask:
    """Puts the question of a row and says what a right answer looks like; implements `Task`."""

    name: str
    prompt: ColumnChoice
    answer: ColumnChoice | None
    """None where the rows have no gold answer."""
    instruction: str
    """Put behind the question, on a line of its own; empty puts none."""
    respond: Callable[[str], str | None]
    """From the gold answer to a response that must score 1; None where none is known."""
    rewards: tuple[GradedReward, ...]
    every_row_has_gold: bool = True
    """Whether a row without a gold answer is broken; else it merely cannot be tested."""

    def messages(self, row: Mapping[str, Any]) -> list[Message]:
        """The chat turns that put the row's question, the instruction behind the last one.

        Raises MissingColumnError (a KeyError) for a missing column, ValueError where it holds neither text nor
        chat messages.
        """
        column = self.prompt.find(row)
        turns = _turns(row[column], column)
        if not self.instruction:
            return turns
        last = turns[-1]
        return [*turns[:-1], Message(role=last["role"], content=f"{last['content']}\n{self.instruction}")]

    def render_gold(self, row: Mapping[str, Any]) -> str | None:
        """A response that must score 1; None where the row may lack a gold answer and does.

        Where a function of the user's judges, it is the first of a list, and a boolean is its name. Raises
        MissingColumnError (a KeyError) for a missing column, and GoldError (a ValueError) for a gold answer that is
        missing, blank, not finite, or one that the grader cannot read.
        """
        if self.answer is None:
            return None
        column = self.answer.find(row)
        gold = row[column]
        if gold is None and not self.every_row_has_gold:
            return None
        if not self.rewards and isinstance(gold, (list, tuple)) and gold:
            gold = gold[0]
        if not self.rewards and isinstance(gold, bool):
            gold = str(gold)
        may_be_json = any(GRADERS[reward.name].gold_may_be_json for reward in self.rewards if reward.name in GRADERS)
        return self.respond(gold_text(gold, f"column {column!r}", may_be_json=may_be_json))


def chosen_instruction(config: DataConfig, default: str) -> str:
    """The instruction of the config, or else the task's own."""
    return default if config.instruction is None else config.instruction


def _turns(value: Any, column: str) -> list[Message]:
    if isinstance(value, str) and value.strip():
        return [Message(role="user", content=value)]
    if isinstance(value, Sequence) and value and all(_is_turn(turn) for turn in value):
        return [cast(Message, dict(turn)) for turn in value]
    raise ValueError(
        f"column {column!r} must hold text, or a list of chat messages with role and content as text, and not be "
        f"empty, got {type(value).__name__} {str(value)[:60]!r}"
    )


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, Mapping) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
