"""The rubric: a text with `{names}` that the prompt, the completion and the columns of the row are put in for.

Only plain names are taken: a rubric never looks inside a value, and what a value holds is never read as a rubric.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from strop.data.errors import SettingError
from strop.errors import nearest_hint
from strop.records import Message, Prompt

OWN_NAMES = ("prompt", "completion")


@dataclass(frozen=True)
class Rubric:
    """A rubric cut at its names."""

    reward: str
    """Name of the reward, for errors."""
    pieces: tuple[tuple[str, str | None], ...]
    """Text, and the name that follows it; None behind the last text."""

    @classmethod
    def read(cls, text: str, reward: str) -> "Rubric":
        """Cuts a rubric; raises SettingError where its braces are no plain names, or where it asks about nothing."""
        try:
            fields = list(Formatter().parse(text))
        except ValueError as error:
            raise SettingError(
                f"the rubric of reward {reward!r} must have braces in pairs, got: {error}", _DOUBLE
            ) from error
        for _, name, form, conversion in fields:
            if name is not None and (not name.isidentifier() or form or conversion):
                shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
                raise SettingError(
                    f"the rubric of reward {reward!r} must have plain names between braces, got {{{shown}}}", _DOUBLE
                )
        rubric = cls(reward, tuple((literal, name) for literal, name, _, _ in fields))
        if "completion" not in rubric.names:
            raise SettingError(
                f"the rubric of reward {reward!r} must show the judge what to judge, got no {{completion}} in it"
            )
        return rubric

    @property
    def names(self) -> frozenset[str]:
        """The names that something is put in for."""
        return frozenset(name for _, name in self.pieces if name is not None)

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises SettingError where a name is neither `prompt` nor `completion` nor a column of every row."""
        offered = columns | set(OWN_NAMES)
        for name in sorted(self.names - offered):
            raise SettingError(
                f"the rubric of reward {self.reward!r} must name columns of every row, got {{{name}}}"
                f"{nearest_hint(name, offered)}; columns found: {', '.join(sorted(columns)) or 'none'}",
                _DOUBLE,
            )

    def fill(self, prompt: Prompt, completion: str) -> str:
        """The question about one sample."""
        values = {**prompt.columns, "prompt": conversation_text(prompt.messages), "completion": completion}
        return "".join(text + ("" if name is None else _shown(values[name])) for text, name in self.pieces)


_DOUBLE = "Write {{ and }} for braces that are part of the text."


def conversation_text(messages: Sequence[Message]) -> str:
    """A prompt as plain text: the content of its one message, or `role: content` for each of several."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _shown(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
