"""What makes text of a row unusable, whatever it means: too long, a NUL in it, or half a character."""

from collections.abc import Mapping
from typing import Any

MAX_FIELD_CHARACTERS = 8 * 2**20
"""A text longer than this is taken for a mistake: no model reads it."""


def row_fault(columns: Mapping[str, Any]) -> str | None:
    """Why a row cannot be used, naming the column; None where nothing is wrong with its text."""
    for name, value in columns.items():
        fault = _fault(value)
        if fault is not None:
            return f"column {name!r} {fault}"
    return None


def _fault(value: Any) -> str | None:
    """The fault of a text, or the first one inside a table or list, however deep."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            fault = text_fault(item)
            if fault is not None:
                return fault
        elif isinstance(item, Mapping):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
    return None


def text_fault(text: str) -> str | None:
    """What is wrong with a text; None where nothing is."""
    if len(text) > MAX_FIELD_CHARACTERS:
        return f"must hold texts of at most {MAX_FIELD_CHARACTERS} characters, got {len(text)}"
    if "\0" in text:
        return f"must hold no NUL character, got one at {text.index(chr(0))}"
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"must hold whole characters, got half of one (a lone surrogate) at {error.start}"
    return None
