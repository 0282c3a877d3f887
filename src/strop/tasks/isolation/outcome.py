"""What became of one call in a child process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Factory = Callable[[], Callable[..., Any]]
"""Picklable by reference; called once in a child. What it returns takes the calls and returns JSON data."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The value of a call, or why there is none."""

    value: Any = None
    """What the call returned, as JSON data: tuples are lists."""
    error: str | None = None
    """One line, and behind it the traceback where one is known; None where the call returned."""
    seconds: float = 0.0
    """How long the call ran; without what it waited for its turn."""
