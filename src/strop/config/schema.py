"""Questions about the config models: which sections an annotation holds, and what a value must be."""

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from strop.config.base import Section

_UNIONS = (Union, types.UnionType)
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    dict: "a table",
    Any: "any value",
}
_PLURALS: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


def members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of an annotation without None, `Annotated` unwrapped: one where it is no union."""
    if get_origin(annotation) is Annotated:
        return members(get_args(annotation)[0])
    if get_origin(annotation) in _UNIONS:
        return tuple(member for part in get_args(annotation) for member in members(part))
    return () if annotation is type(None) else (annotation,)


def allows_none(annotation: Any) -> bool:
    """Whether None is a value of the annotation."""
    if get_origin(annotation) is Annotated:
        return allows_none(get_args(annotation)[0])
    return get_origin(annotation) in _UNIONS and any(
        part is type(None) or allows_none(part) for part in get_args(annotation)
    )


def sections(annotation: Any) -> tuple[type[Section], ...]:
    """The config sections that the annotation allows; none where it holds plain values."""
    return tuple(member for member in members(annotation) if isinstance(member, type) and issubclass(member, Section))


def item_sections(annotation: Any) -> tuple[type[Section], ...]:
    """The config sections that a list annotation holds; none where it is no list of sections."""
    lists = [member for member in members(annotation) if get_origin(member) is list]
    return tuple(section for member in lists for section in sections(get_args(member)[0]))


def choices(annotation: Any) -> tuple[Any, ...]:
    """The literal values that the annotation lists."""
    return tuple(value for member in members(annotation) if get_origin(member) is Literal for value in get_args(member))


def tag(section: type[Section]) -> str:
    """The value of `type` that chooses this section among its alternatives."""
    return str(choices(section.model_fields["type"].annotation)[0])


def accepts_text(annotation: Any) -> bool:
    """Whether a bare word can be a value of the annotation."""
    return any(member in (str, Path) for member in members(annotation)) or any(
        isinstance(choice, str) for choice in choices(annotation)
    )


def _constraints(metadata: list[Any]) -> Iterator[str]:
    """The bounds of a field in words."""
    for bound in metadata:
        match bound:
            case annotated_types.Ge(ge=value):
                yield f"at least {value}"
            case annotated_types.Gt(gt=value):
                yield f"above {value}"
            case annotated_types.Le(le=value):
                yield f"at most {value}"
            case annotated_types.Lt(lt=value):
                yield f"below {value}"
            case annotated_types.MinLen(min_length=value):
                yield f"with at least {value} {'entry' if value == 1 else 'entries'}"
            case _:
                continue


def constraints(field: FieldInfo) -> str:
    """The bounds of a field in words, such as `above 0 and below 1`; empty where there are none."""
    return " and ".join(_constraints(field.metadata))


def _kind(member: Any) -> str:
    """One alternative of an annotation in words."""
    if get_origin(member) is Literal:
        values = [str(value) for value in get_args(member)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    if get_origin(member) is list:
        item = get_args(member)[0]
        return f"a list of {'tables' if sections(item) else _PLURALS.get(item) or kind(item)}"
    if isinstance(member, type) and issubclass(member, Section):
        return "a table"
    return _WORDS[get_origin(member) or member]


def kind(annotation: Any) -> str:
    """An annotation in words, such as `a whole number` or `one of grpo, dapo`."""
    return " or ".join(dict.fromkeys(_kind(member) for member in members(annotation)))


def item_kind(annotation: Any) -> str:
    """What an entry of a list must be, in words."""
    return " or ".join(kind(get_args(member)[0]) for member in members(annotation) if get_origin(member) is list)


def expectation(field: FieldInfo) -> str:
    """What a value of the field must be, in words: its kind and its bounds."""
    bounds = constraints(field)
    separator = " " if bounds.startswith("with") else ", "
    return kind(field.annotation) + (f"{separator}{bounds}" if bounds else "")


def documentation(field: FieldInfo) -> str:
    """The documentation under the field, on one line."""
    return " ".join((field.description or "").split())


def fields(options: tuple[type[Section], ...]) -> Mapping[str, FieldInfo]:
    """The fields of all alternatives together, the first one's where they share a name."""
    together: dict[str, FieldInfo] = {}
    for section in options:
        for name, field in section.model_fields.items():
            together.setdefault(name, field)
    return together
