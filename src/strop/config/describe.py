"""Every key of a run file with its type, default, bounds and documentation, read from the models themselves."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic.fields import FieldInfo

from strop.config.base import Section
from strop.config.offline import OfflineConfig
from strop.config.root import Config
from strop.config.schema import constraints, documentation, item_sections, kind, sections, tag
from strop.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """One key as `strop config` shows it."""

    key: str
    """Dotted; `[]` stands for the entries of a list of tables."""
    kind: str
    """What its value must be, in words."""
    default: str | None
    """As TOML would write it; None where the key is required."""
    constraints: str
    """Bounds in words; empty where there are none."""
    documentation: str
    when: str
    """The value of `type` that the key belongs to; empty where it always exists."""

    @property
    def required(self) -> bool:
        """Whether a run file must give the key (where its table is there at all)."""
        return self.default is None


def describe(*, offline: bool = False) -> list[KeyDescription]:
    """Returns every key that holds a value, in the order of the sections; of offline training, where asked for."""
    return list(_describe_section(OfflineConfig if offline else Config, "", ""))


def _describe_section(
    section: type[Section], prefix: str, when: str, around: Mapping[type[Section], str] = MappingProxyType({})
) -> Iterator[KeyDescription]:
    """The keys of a section; `around` holds the alternatives that it stands in, by the key that describes them."""
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        if tables := sections(field.annotation):
            if set(tables) <= set(around):
                yield _reference(key, field, when, around[tables[0]])
            else:
                yield from _describe_tables(tables, f"{key}.", when, around)
        elif items := item_sections(field.annotation):
            yield from _describe_tables(items, f"{key}[].", when, around)
        else:
            yield KeyDescription(
                key, kind(field.annotation), _default(field), constraints(field), documentation(field), when
            )


def _reference(key: str, field: FieldInfo, when: str, described_at: str) -> KeyDescription:
    """One line for a table whose keys are those of the table that it stands in."""
    text = f"{documentation(field)} Its keys are those of `{described_at}`."
    return KeyDescription(key, "a table", None, "", text, when)


def _describe_tables(
    tables: tuple[type[Section], ...], prefix: str, when: str, around: Mapping[type[Section], str]
) -> Iterator[KeyDescription]:
    if len(tables) == 1:
        yield from _describe_section(tables[0], prefix, when, around)
        return
    tags = ", ".join(tag(table) for table in tables)
    field = tables[0].model_fields["type"]
    yield KeyDescription(f"{prefix}type", f"one of {tags}", None, "", documentation(field), "")
    inside = {**around, **dict.fromkeys(tables, prefix.removesuffix("."))}
    for table in tables:
        for description in _describe_section(table, prefix, f"type = {tag(table)}", inside):
            if description.key != f"{prefix}type":
                yield description


def _default(field: FieldInfo) -> str | None:
    """The default as TOML writes it, `none` for an absent value; None where the key is required."""
    if field.is_required():
        return None
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    return json.dumps(str(value) if isinstance(value, Path) else value)


def describe_only(name: str, *, offline: bool = False) -> list[KeyDescription]:
    """Returns the keys of a section (`training`) or the one key (`training.learning_rate`) of that name.

    Raises ConfigError with the nearest name where there is none.
    """
    everything = describe(offline=offline)
    selected = [item for item in everything if item.key == name or item.key.startswith((f"{name}.", f"{name}["))]
    if not selected:
        keys = [item.key for item in everything]
        names = [*dict.fromkeys(key.split(".")[0].removesuffix("[]") for key in keys), *keys]
        near = get_close_matches(name, names, n=1)
        remedy = f"Did you mean {near[0]}?" if near else "`strop config` lists them all."
        raise ConfigError(f"{name} must be a section or a key of a run file", remedy)
    return selected


def as_json(descriptions: list[KeyDescription]) -> str:
    """Returns the descriptions as a JSON list of objects."""
    return json.dumps([{**asdict(item), "required": item.required} for item in descriptions], indent=1)


_MARKDOWN_HEAD = """# Every key of a run file

`strop config --markdown` writes this page from the config models; `make docs` puts it here. A key has the value of
its column "default" unless the file or a `section.key=value` on the command line says otherwise.
`[]` stands for the entries of a list of tables."""

_OFFLINE_MARKDOWN_HEAD = """# Every key of a run file of offline training

`strop config --offline --markdown` writes this page from the config models; `make docs` puts it here. What the
methods do: [offline.md](offline.md). Columns and default are those of [config.md](config.md)."""

_MARKDOWN_COLUMNS = "| key | must be | default | meaning |\n|---|---|---|---|"


def as_markdown(descriptions: list[KeyDescription], *, offline: bool = False) -> str:
    """Returns the descriptions as a page of Markdown tables, one for each section."""
    root: type[Section] = OfflineConfig if offline else Config
    parts = [_OFFLINE_MARKDOWN_HEAD if offline else _MARKDOWN_HEAD]
    for section, items in groupby(descriptions, lambda item: item.key.split(".")[0].removesuffix("[]")):
        rows = "\n".join(_markdown_row(item) for item in items)
        parts.append(f"## {section}\n\n{documentation(root.model_fields[section])}\n\n{_MARKDOWN_COLUMNS}\n{rows}")
    return "\n\n".join(parts)


def _markdown_row(item: KeyDescription) -> str:
    default = {None: "required", "none": "left out"}.get(item.default, f"`{item.default}`")
    wanted = f"{item.kind}, {item.constraints}" if item.constraints else item.kind
    meaning = f"With `{item.when}`: {item.documentation}" if item.when else item.documentation
    cells = (f"`{item.key}`", wanted, default, meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
