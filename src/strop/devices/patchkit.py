"""Guarded patches of foreign libraries.

A patch replaces one function of a library only where the source of that function is one it was written for. All
patches of a call are checked before any is applied, so a refusal leaves everything as it was.

    patches --check all--> targets with outcomes --apply--> outcomes by name
                 |
                 +-- an unknown source, a foreign patch, a missing target: PatchRefusedError, nothing changed

A spawned child begins with the unpatched library: hand it `PatchedEntry(patches, function)` instead of `function`.
"""

import hashlib
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import FunctionType
from typing import Any

from strop.errors import StropError

MARKER = "__strop_patch__"


class Outcome(StrEnum):
    """What applying a patch found."""

    APPLIED = "applied"
    ALREADY_APPLIED = "already applied"
    FIXED_UPSTREAM = "fixed upstream"


class PatchRefusedError(StropError):
    """A patch does not fit the installed library; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One replacement, picklable: functions are named as `module:qualified.name`."""

    name: str
    target: str
    """The function, method, staticmethod or classmethod to replace, such as `vllm.engine:Engine.wake`."""
    replacement: str
    """A function of an importable module that takes the original function and returns the new one."""
    accepted: frozenset[str]
    """Fingerprints of sources that the patch is written for."""
    fixed: frozenset[str] = frozenset()
    """Fingerprints of sources that do not need it any more."""
    reason: str = ""
    """Why it is needed, with the issue at the library."""
    expires: str = ""
    """The library's version from which on the patch should be gone."""


@dataclass(frozen=True, slots=True)
class _Target:
    owner: Any
    attribute: str
    held: Any
    """What the owner holds: the function, or the staticmethod or classmethod around it."""

    @property
    def function(self) -> Any:
        return self.held.__func__ if isinstance(self.held, staticmethod | classmethod) else self.held

    def replace(self, function: Callable[..., Any]) -> None:
        wrapper = type(self.held) if isinstance(self.held, staticmethod | classmethod) else None
        setattr(self.owner, self.attribute, function if wrapper is None else wrapper(function))


def apply_patches(patches: Sequence[Patch]) -> dict[str, Outcome]:
    """Applies patches and returns the outcome of each by name.

    Raises PatchRefusedError, before anything is changed, where a target is missing, has a source that no fingerprint
    knows, or carries another patch, and where two patches name one target.
    """
    _check_distinct(patches)
    checked = [(patch, target, _check(patch, target)) for patch in patches for target in [_locate(patch)]]
    replacements = [
        (target, _replacement(patch, target)) for patch, target, outcome in checked if outcome is Outcome.APPLIED
    ]
    for target, function in replacements:
        target.replace(function)
    return {patch.name: outcome for patch, _, outcome in checked}


def fingerprint(function: FunctionType) -> str:
    """Returns a digest of a function's source that does not depend on white space. Raises OSError without source.

    It reads the function's own code: what someone else wrapped around a known function is not known.
    """
    source = "".join(inspect.getsource(function.__code__).split())
    return hashlib.sha256(source.encode()).hexdigest()


def describe(patches: Sequence[Patch]) -> list[str]:
    """Returns a line for each patch, for the head of a run."""
    return [
        f"patch {patch.name} of {patch.target}"
        + (f", until {patch.expires}" if patch.expires else "")
        + (f": {patch.reason}" if patch.reason else "")
        for patch in patches
    ]


@dataclass(frozen=True, slots=True)
class PatchedEntry:
    """The entry of a spawned child: applies the patches there, then calls the function."""

    patches: tuple[Patch, ...]
    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Applies the patches in this process and calls the function."""
        apply_patches(self.patches)
        return self.function(*arguments, **keywords)


def _check_distinct(patches: Sequence[Patch]) -> None:
    for field in ("name", "target"):
        values = [getattr(patch, field) for patch in patches]
        doubled = sorted({value for value in values if values.count(value) > 1})
        if doubled:
            raise PatchRefusedError(f"each patch must have a {field} of its own, got twice: {', '.join(doubled)}")


def _locate(patch: Patch) -> _Target:
    module_name, _, qualified_name = patch.target.partition(":")
    *path, attribute = qualified_name.split(".")
    try:
        owner: Any = importlib.import_module(module_name)
        for name in path:
            owner = getattr(owner, name)
        held = vars(owner)[attribute]
    except (ImportError, AttributeError, KeyError) as error:
        raise PatchRefusedError(
            f"patch {patch.name} needs {patch.target}, which is not there: {type(error).__name__}: {error}",
            "Name the class that defines the function itself, or drop the patch for this version of the library.",
        ) from error
    target = _Target(owner, attribute, held)
    if not inspect.isfunction(target.function):
        raise PatchRefusedError(f"patch {patch.name} must name a Python function, got {held!r} at {patch.target}")
    return target


def _check(patch: Patch, target: _Target) -> Outcome:
    applied = vars(target.function).get(MARKER)
    if applied == patch.name:
        return Outcome.ALREADY_APPLIED
    if applied is not None:
        raise PatchRefusedError(f"patch {patch.name} needs {patch.target} as it came, got it patched by {applied}")
    try:
        found = fingerprint(target.function)
    except OSError as error:
        raise PatchRefusedError(f"patch {patch.name} needs the source of {patch.target}: {error}") from error
    if found in patch.fixed:
        return Outcome.FIXED_UPSTREAM
    if found not in patch.accepted:
        raise PatchRefusedError(
            f"patch {patch.name} knows {len(patch.accepted)} source(s) of {patch.target}, got another: {found}",
            "Read the function of the installed version: add its fingerprint if the patch still fits, or to `fixed`.",
        )
    return Outcome.APPLIED


def _replacement(patch: Patch, target: _Target) -> Callable[..., Any]:
    module_name, _, function_name = patch.replacement.partition(":")
    make: Callable[[Callable[..., Any]], Callable[..., Any]] = getattr(
        importlib.import_module(module_name), function_name
    )
    function = make(target.function)
    if function is target.function or not inspect.isfunction(function):
        raise PatchRefusedError(f"{patch.replacement} must return a new Python function, got {function!r}")
    vars(function)[MARKER] = patch.name
    return function
