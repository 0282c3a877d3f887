"""A config is written as TOML: every key with the value that holds, absent values left out.

Loading the text gives an equal Config, whatever the defaults are by then. That is what a run folder keeps.
"""

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.config.base import Section
from strop.errors import ConfigError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dump_config(config: Section) -> str:
    """Writes a config as TOML; raises ConfigError where a free table holds what TOML cannot say."""
    return "\n".join(_table(config, "")).strip() + "\n"


def _table(section: Section, name: str) -> list[str]:
    """The lines of a section: its own values first, then the sections and lists of sections inside it."""
    values = {key: value for key, value in vars(section).items() if value is not None}
    plain = {key: value for key, value in values.items() if not _holds_sections(value)}
    lines = [f"{key} = {_value(value, f'{name}.{key}')}" for key, value in plain.items()]
    for key, value in values.items():
        inner = f"{name}.{key}" if name else key
        if isinstance(value, Section):
            lines += ["", f"[{inner}]", *_table(value, inner)]
        elif _holds_sections(value):
            for item in value:
                lines += ["", f"[[{inner}]]", *_table(item, inner)]
    return lines


def _holds_sections(value: Any) -> bool:
    return isinstance(value, Section) or (isinstance(value, list) and any(isinstance(item, Section) for item in value))


def _value(value: Any, key: str) -> str:
    """A plain value in TOML's words."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str() | Path():
            return _text(str(value))
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join(_value(item, key) for item in value)}]"
        case Mapping():
            pairs = [f"{_key(name)} = {_value(inner, f'{key}.{name}')}" for name, inner in value.items()]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case _:
            raise ConfigError(f"{key} must hold only what TOML can say, got {value!r}")


def _key(name: Any) -> str:
    return str(name) if _BARE_KEY.fullmatch(str(name)) else _text(str(name))


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, except that TOML wants the delete character escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
