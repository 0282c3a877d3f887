"""Overrides on the command line: `section.key=value`, laid over the tree that a run file gave.

The value is read as TOML; what is not TOML is a bare word. What a word means depends on the key
(`run.name=2026` is text, `model.gguf_file=none` is the absence of a value), so both readings travel in
an `Override` until the loader knows the key's type.
"""

import copy
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strop.config.schema import accepts_text, allows_none, choices
from strop.errors import ConfigError

_NONE_WORDS = ("none", "null", "None")
_TOML_OPENERS = ('"', "'", "[", "{")


@dataclass(frozen=True, slots=True)
class Override:
    """A value from the command line: as it was typed, and as TOML reads it."""

    text: str
    value: Any

    def resolve(self, annotation: Any) -> Any:
        """Returns what was meant for a key of this type."""
        if self.text in _NONE_WORDS and allows_none(annotation) and self.text not in choices(annotation):
            return None
        if accepts_text(annotation) and not isinstance(self.value, str | list | dict):
            return self.text
        return self.value


@dataclass(frozen=True, slots=True)
class Assignment:
    """One override: the path of its key, cut at the dots, and its value."""

    path: tuple[str, ...]
    override: Override


def parse_override(text: str) -> Assignment:
    """Reads `section.key=value`; raises ConfigError where it has another form or the value is broken TOML."""
    key, equals, value = text.partition("=")
    path = tuple(re.sub(r"\[(\d+)\]", r".\1", key.strip()).split("."))
    if not equals or not all(path):
        raise ConfigError(
            f"an override must have the form section.key=value, got {text!r}",
            "Write for example training.learning_rate=1e-5.",
        )
    return Assignment(path, Override(value, _read_value(value, text)))


def _read_value(value: str, override: str) -> Any:
    """The value as TOML, or as a bare word where it does not even begin as TOML."""
    try:
        document = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError as error:
        if value.lstrip().startswith(_TOML_OPENERS):
            raise ConfigError(
                f"the value of the override {override!r} must be valid TOML: {error}",
                "Put the whole override in single quotes, so that the shell leaves its quotes and brackets alone.",
            ) from error
        return value
    return document["value"] if len(document) == 1 else value


def apply_override(tree: dict[str, Any], assignment: Assignment, default_lists: Mapping[str, list[Any]]) -> None:
    """Lays one override over the tree, in place; missing tables are made.

    `default_lists` holds, by dotted key, the lists that stand where the file gives none, so that
    `rewards.0.weight=2` changes the default reward.
    """
    at: Any = tree
    for depth, part in enumerate(assignment.path[:-1]):
        dotted = ".".join(assignment.path[: depth + 1])
        if isinstance(at, dict) and dotted in default_lists:
            at.setdefault(part, copy.deepcopy(default_lists[dotted]))
        at = _enter(at, part, dotted)
    _put(at, assignment)


def _enter(at: Any, part: str, dotted: str) -> Any:
    """The table or list at `part`, made where there is none."""
    if isinstance(at, list):
        index = _index(at, part, dotted)
        if index == len(at):
            at.append({})
        inner = at[index]
    else:
        inner = at.setdefault(part, {})
    if isinstance(inner, Override) and isinstance(inner.value, dict | list):
        inner = inner.value
        at[part if isinstance(at, dict) else int(part)] = inner
    if not isinstance(inner, dict | list):
        raise ConfigError(f"{dotted} must be a table to set a key inside it, got {_shown(inner)}")
    return inner


def _put(at: Any, assignment: Assignment) -> None:
    """Sets the last part of the path."""
    part, dotted = assignment.path[-1], ".".join(assignment.path)
    if not isinstance(at, list):
        at[part] = assignment.override
        return
    index = _index(at, part, dotted)
    if index == len(at):
        at.append(assignment.override)
    else:
        at[index] = assignment.override


def _index(items: list[Any], part: str, dotted: str) -> int:
    """The place in a list that `part` names: an entry, or the one behind the last."""
    if not part.isdigit() or int(part) > len(items):
        raise ConfigError(f"{dotted} must name an entry of a list, from 0 to {len(items)} (a new one), got {part!r}")
    return int(part)


def _shown(value: Any) -> str:
    """A value as a person typed it."""
    return value.text if isinstance(value, Override) else repr(value)
