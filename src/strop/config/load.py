"""A run file and the overrides of a command line become one frozen config, or one error that says it all.

An online run is a `Config`, an offline one (`strop sft` and its relatives) an `OfflineConfig`; both are read alike.

Relative paths, in the file and in overrides alike, are relative to the current directory, as in every tool
of the Hugging Face family, and stay as they were written: one rule for files, the command line and Python.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from strop.config.base import Section
from strop.config.dump import dump_config
from strop.config.offline import OfflineConfig, OfflineMethodName
from strop.config.overrides import apply_override, parse_override
from strop.config.root import Config
from strop.config.schema import documentation, expectation, fields, item_kind, item_sections, sections, tag
from strop.config.tree import Fitter, shown
from strop.errors import ConfigError

__all__ = ["dump_config", "load_config", "load_offline_config", "load_stored_config", "read_tree"]

RootT = TypeVar("RootT", bound=Section)


def load_config(path: Path | str | None, overrides: Sequence[str] = ()) -> Config:
    """Reads a run file (none: only the overrides) and lays `section.key=value` overrides over it.

    Raises ConfigError with every problem at once, each with its dotted key, what must be and what was got.
    It says nothing of keys that do not go together: `strop.config.checks.check` does.
    """
    return _build(Config, _overridden(Config, path, overrides), _origin(path))


def load_offline_config(
    path: Path | str | None, overrides: Sequence[str] = (), method: OfflineMethodName | None = None
) -> OfflineConfig:
    """Reads the run file of offline training as `load_config` reads one of an online run.

    `method` is that of the command: what `offline.type` is where the file leaves it out. Raises ConfigError too where
    the file names another one.
    """
    tree = _overridden(OfflineConfig, path, overrides)
    section = tree.setdefault("offline", {})
    if method is not None and isinstance(section, dict):
        section.setdefault("type", method)
    tree.setdefault("training", {})
    config = _build(OfflineConfig, tree, _origin(path))
    if method is not None and config.offline.type != method:
        raise ConfigError(
            f"offline.type must be {method}, as the command says, got {config.offline.type}",
            f"Run it with `strop {config.offline.type}`, or leave offline.type out.",
        )
    return config


def load_stored_config(path: Path) -> Config | OfflineConfig:
    """Reads the config that a run stored in its folder, whatever kind of run it was."""
    return load_offline_config(path) if "offline" in read_tree(path) else load_config(path)


def _overridden(root: type[Section], path: Path | str | None, overrides: Sequence[str]) -> dict[str, Any]:
    """The tree of a run file with the overrides laid over it."""
    tree = read_tree(Path(path)) if path is not None else {}
    for text in overrides:
        apply_override(tree, parse_override(text), _default_lists(root))
    return tree


def _origin(path: Path | str | None) -> str:
    return str(path) if path is not None else "the command line"


def read_tree(path: Path) -> dict[str, Any]:
    """Reads a TOML file; raises ConfigError where it is missing, no file, no UTF-8 or no TOML."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        raise ConfigError(f"the run file {path} must be a TOML file, got {found} ({path.absolute()})")
    try:
        return tomllib.loads(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} must be UTF-8 text, got a byte that is not at offset {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} must be valid TOML: {error}") from error


def _default_lists(root: type[Section]) -> dict[str, list[Any]]:
    """The lists that stand where a file gives none, by dotted key."""
    lists: dict[str, list[Any]] = {}
    for name, field in root.model_fields.items():
        for section in sections(field.annotation):
            for inner, leaf in section.model_fields.items():
                if isinstance(default := leaf.get_default(call_default_factory=True, validated_data={}), list):
                    lists[f"{name}.{inner}"] = default
        if item_sections(field.annotation):
            default = field.get_default(call_default_factory=True, validated_data={})
            lists[name] = [item.model_dump(exclude_unset=True) for item in default]
    return lists


def _build(root: type[RootT], tree: dict[str, Any], origin: str) -> RootT:
    """The tree as a config; raises ConfigError with every problem."""
    fitter = Fitter(root)
    fitted = fitter.fit(tree)
    problems = dict(fitter.problems)
    try:
        config = root.model_validate(fitted, strict=True)
    except ValidationError as error:
        for key, message in _pydantic_problems(root, error.errors()).items():
            if not any(_same_branch(key, known) for known in fitter.problems):
                problems[key] = message
    if not problems:
        return config
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "\n".join(f"  {message}" for message in problems.values())
    listing = "strop config --offline" if root is OfflineConfig else "strop config"
    raise ConfigError(f"{origin} has {count}:\n{lines}", f"`{listing}` lists every key.")


def _same_branch(key: str, known: str) -> bool:
    """Whether one key lies on the way to the other, so that a second problem says nothing new."""
    short, long = sorted((key, known), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}["))


def _pydantic_problems(root: type[Section], errors: Sequence[ErrorDetails]) -> dict[str, str]:
    """One message a key: several alternatives of one key that all failed are one problem."""
    problems: dict[str, str] = {}
    for error in errors:
        key, field = _locate(root, error["loc"])
        if error["type"] == "missing":
            problems[key] = f"{key} is required: {documentation(field)}"
        else:
            wanted = item_kind(field.annotation) if key.endswith("]") else expectation(field)
            problems.setdefault(key, f"{key} must be {wanted}, got {shown(error['input'])}")
    return problems


def _locate(root: type[Section], location: Sequence[int | str]) -> tuple[str, FieldInfo]:
    """The dotted key of a pydantic location and its field; names of alternatives are not part of a key."""
    options: tuple[type[Any], ...] = (root,)
    key, field = "", FieldInfo()
    for part in location:
        known: Mapping[str, FieldInfo] = fields(options)
        if isinstance(part, int):
            key += f"[{part}]"
        elif part in known:
            key, field = f"{key}.{part}" if key else part, known[part]
            options = sections(field.annotation) or item_sections(field.annotation)
        else:
            options = tuple(option for option in options if tag(option) == part)
    return key, field
