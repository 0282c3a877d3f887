"""The errors that strop itself raises: something that a person can put right, said in one message.

This file is on the lowest line of the house: every package may import it, and it imports none. The
command line turns a `StropError` into its message and its exit code, without a traceback; every other
exception is a fault of the program and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class StropError(Exception):
    """Says what must be, what was got, and the remedy where there is one.

    `message` may have several lines. `remedy` is a sentence in the imperative, printed on its own line.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return self.message if self.remedy is None else f"{self.message}\n{self.remedy}"


class ConfigError(StropError):
    """The run file or an override is wrong, or asks for what cannot work together."""


class DataError(StropError):
    """A data source is missing, malformed, or does not fit the task."""


class ModelError(StropError):
    """A model or its tokenizer cannot be loaded, or is of a kind that is not supported."""


class CheckpointError(StropError):
    """A checkpoint cannot be written, found, verified or restored."""


class SyncError(StropError):
    """The proof of a weight publication failed: a sampler does not hold the published weights."""


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean 'x'?)` for the known name closest to `name`, or nothing where none is close."""
    matches = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
