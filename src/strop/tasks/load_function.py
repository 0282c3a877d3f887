"""Functions of the user's (rewards, losses, estimators) are found by `my_file.py:name` or `package.module:name`.

A file is loaded under a module name of its own, so that it need not be importable; what goes wrong in it is
reported with its line. Imports nothing heavy: this runs in the child processes that call the functions.
"""

import difflib
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from strop.errors import ConfigError

REWARD = "rewards.function"
"""The key that names a reward."""


class FunctionError(ConfigError, ValueError):
    """A function of the user's that cannot be found, loaded or used."""


def load_function(location: str, key: str = REWARD) -> Callable[..., Any]:
    """Returns the function at `location`; a module that is loaded already is not loaded again.

    `key` is the key of the run file that names it, for the errors.

    Raises FunctionError where the location has another form, where file or module cannot be read or run (with the
    line), and where it has no such function (with the names found).
    """
    where, name = split_location(location, key)
    module = _load_file(Path(where), key) if where.endswith(".py") else _import(where, key)
    return _member(module, name, where, key)


def split_location(location: str, key: str = REWARD) -> tuple[str, str]:
    """Returns file or module, and the name of the function; raises FunctionError where the location is neither form."""
    where, separator, name = location.rpartition(":")
    if not separator or not where or not name.isidentifier():
        task, hint = ("`task`, ", _hint(location, ["task"])) if key == REWARD else ("", "")
        raise FunctionError(f"{key} must be {task}`my_file.py:name` or `package.module:name`, got {location!r}{hint}")
    return where, name


def absolute_location(location: str) -> str:
    """The location with its file as an absolute path: another process may have another working folder."""
    where, name = split_location(location)
    return f"{Path(where).resolve()}:{name}" if where.endswith(".py") else location


def source_digest(location: str) -> str | None:
    """A hash of the file; None where the location names a module, or a file that cannot be read."""
    where, _ = split_location(location)
    file = Path(where)
    if not where.endswith(".py") or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _load_file(file: Path, key: str) -> ModuleType:
    if not file.is_file():
        raise FunctionError(f"{key}: {file} must be a readable Python file, got no such file in {Path.cwd()}")
    module_name = f"strop_user_{file.resolve().as_posix().replace('/', '_').removesuffix('.py')}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise FunctionError(f"{key}: {file} must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look their module up here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise FunctionError(f"{key}: {file} cannot be loaded: {error_with_line(error, file)}") from error
    return module


def _import(name: str, key: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise FunctionError(
            f"{key}: module {name!r} cannot be imported: {type(error).__name__}: {error} "
            "(a file is given as `my_file.py:name`)"
        ) from error


def error_with_line(error: BaseException, file: Path) -> str:
    """Returns the error with the line of the user's file that raised it."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"


def _member(module: ModuleType, name: str, where: str, key: str) -> Callable[..., Any]:
    members = vars(module)
    functions = sorted(name for name, value in members.items() if callable(value) and not name.startswith("_"))
    if name not in members:
        found = ", ".join(functions) or "none"
        raise FunctionError(
            f"{key}: {where} must have the function {name!r}{_hint(name, functions)}; functions found: {found}"
        )
    function = members[name]
    if not callable(function):
        raise FunctionError(f"{key}: {name!r} in {where} must be a function, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def _hint(name: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean 'x'?)` for the known name closest to `name`, or nothing where none is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
