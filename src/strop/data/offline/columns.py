"""What a row's columns mean for a method: which conversations, and which of their turns are trained.

    sft             messages, or prompt and completion
    dpo, ipo        prompt, chosen and rejected; without a prompt, what chosen and rejected both begin with
    kto             prompt, completion and label; or messages and label, which is of the last turn

A prompt that is a text is a user's turn, an answer that is a text an assistant's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from strop.config.offline import OfflineMethodName
from strop.data.errors import MissingColumnError
from strop.data.offline.turns import Turn, read_turns
from strop.records import Message

TrainOn = Literal["assistant", "last", "all"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, and the places of those that are trained."""

    messages: tuple[Message, ...]
    trained: tuple[int, ...]
    is_whole: bool = False
    """Whether every token bears loss, whoever says it."""


@dataclass(frozen=True, slots=True)
class ReadRow:
    """What one data row holds: one conversation, or the chosen and the rejected one."""

    conversations: tuple[Conversation, ...]
    label: bool | None = None


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads rows for one method. `names` are the columns that are named otherwise."""

    method: OfflineMethodName
    names: Mapping[str, str]
    train_on: TrainOn = "assistant"

    def read(self, columns: Mapping[str, Any]) -> ReadRow:
        """Reads a row. Raises MissingColumnError, and ValueError naming the column that cannot be used."""
        match self.method:
            case "sft":
                return ReadRow((self._supervised(columns),))
            case "dpo" | "ipo":
                return ReadRow(self._pair(columns))
            case "kto":
                return ReadRow((self._labelled(columns),), self._label(columns))

    def _supervised(self, columns: Mapping[str, Any]) -> Conversation:
        if self._has(columns, "messages") or not self._has(columns, "completion"):
            turns = self._turns(columns, "messages", "user")
            first = 0
        else:
            turns, first = self._answered(columns, "completion")
        trained = [place for place in _answers(turns) if place >= first]
        if self.train_on == "last":
            trained = trained[-1:]
        messages = _messages(turns)
        if self.train_on == "all":
            if not turns[-1].is_answer:
                raise ValueError('a conversation must end with an assistant turn for train_on = "all"')
            return Conversation(messages, (len(turns) - 1,), is_whole=True)
        if not trained:
            raise ValueError("a conversation must have an assistant turn that may be trained, got none")
        return Conversation(messages, tuple(trained))

    def _pair(self, columns: Mapping[str, Any]) -> tuple[Conversation, ...]:
        both = [self._answered(columns, name) for name in ("chosen", "rejected")]
        (chosen, first), (rejected, other_first) = both
        if not first or not other_first:
            pairs = zip(_messages(chosen), _messages(rejected), strict=False)
            first = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        if _messages(chosen) == _messages(rejected):
            raise ValueError("chosen and rejected must differ, got the same text twice")
        return tuple(_behind(turns, first, name) for turns, name in ((chosen, "chosen"), (rejected, "rejected")))

    def _labelled(self, columns: Mapping[str, Any]) -> Conversation:
        if self._has(columns, "completion"):
            turns, first = self._answered(columns, "completion")
        else:
            turns, first = self._turns(columns, "messages", "user"), 0
        return _behind(turns, first or len(turns) - 1, "the answer")

    def _label(self, columns: Mapping[str, Any]) -> bool:
        label = self._value(columns, "label")
        if not isinstance(label, bool | int) or label not in (0, 1):
            raise ValueError(f"column {self._name('label')!r} must hold true or false, got {label!r}")
        return bool(label)

    def _answered(self, columns: Mapping[str, Any], name: str) -> tuple[list[Turn], int]:
        """The turns of prompt and answer, and where the answer begins: 0 where the column holds the prompt too."""
        answer = self._turns(columns, name, "assistant")
        if not answer[0].is_answer:
            return answer, 0
        prompt = self._turns(columns, "prompt", "user")
        return [*prompt, *answer], len(prompt)

    def _turns(self, columns: Mapping[str, Any], name: str, role: str) -> list[Turn]:
        return read_turns(self._value(columns, name), self._name(name), role)

    def _value(self, columns: Mapping[str, Any], name: str) -> Any:
        if not self._has(columns, name):
            raise MissingColumnError(self._name(name), columns, "data.columns")
        return columns[self._name(name)]

    def _has(self, columns: Mapping[str, Any], name: str) -> bool:
        return columns.get(self._name(name)) is not None

    def _name(self, name: str) -> str:
        return self.names.get(name, name)


def _behind(turns: list[Turn], first: int, what: str) -> Conversation:
    """The conversation whose answers from the turn `first` on are trained."""
    trained = [place for place in _answers(turns) if place >= first]
    if not trained or first == 0:
        raise ValueError(f"{what} must end a conversation with an assistant turn behind a prompt")
    return Conversation(_messages(turns), tuple(trained))


def _answers(turns: list[Turn]) -> list[int]:
    return [place for place, turn in enumerate(turns) if turn.is_answer and turn.may_train]


def _messages(turns: list[Turn]) -> tuple[Message, ...]:
    return tuple(turn.message for turn in turns)
