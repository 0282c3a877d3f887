"""Chat turns as a data row holds them: a list of messages, or a plain text in their place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from strop.records import Message

_MARKS = ("train", "weight")
"""Keys of a turn that say whether it is trained; no chat template sees them."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    message: Message
    may_train: bool = True
    """False where the row says `train: false` or `weight: 0`."""

    @property
    def is_answer(self) -> bool:
        """Whether the policy would say this."""
        return self.message["role"] == "assistant"


def read_turns(value: Any, column: str, role: str) -> list[Turn]:
    """Reads a list of messages, or a text as one turn of `role`. Raises ValueError naming column and turn."""
    if isinstance(value, str):
        return [Turn(Message(role=role, content=value))]
    if not isinstance(value, list | tuple) or not value:
        got = "an empty list" if isinstance(value, list | tuple) else type(value).__name__
        raise ValueError(f"column {column!r} must hold a text or a list of messages, got {got}")
    return [_read_turn(item, f"message {place} of column {column!r}") for place, item in enumerate(value, 1)]


def _read_turn(item: Any, where: str) -> Turn:
    if not isinstance(item, Mapping):
        raise ValueError(f"{where} must be an object with role and content, got {type(item).__name__}")
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or not role:
        found = ", ".join(sorted(map(str, item))) or "nothing"
        raise ValueError(f"{where} must have a role, such as user or assistant, got the keys {found}")
    if content is None and item.get("tool_calls"):
        content = ""
    if not isinstance(content, str):
        raise ValueError(f"{where} must have a text as its content, got {type(content).__name__}")
    # A data set of one schema gives every turn every key; what a turn does not have is None in it.
    kept = {name: value for name, value in item.items() if name not in _MARKS and value is not None}
    message = cast(Message, {**kept, "role": role, "content": content})
    return Turn(message, _may_train(item, where))


def _may_train(item: Mapping[str, Any], where: str) -> bool:
    train, weight = item.get("train"), item.get("weight")
    if train is not None and not isinstance(train, bool):
        raise ValueError(f"train of {where} must be true or false, got {train!r}")
    if weight is not None and weight not in (0, 1):
        raise ValueError(f"weight of {where} must be 0 or 1, got {weight!r}")
    return train is not False and weight != 0
