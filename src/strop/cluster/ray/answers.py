"""What an actor answers: a result, or an error that crosses the border of processes whole.

Ray wraps exceptions of actors in its own; here an error comes back as what it was raised as, with the traceback of the
other process as a note.
"""

import pickle
import traceback
from dataclasses import dataclass
from typing import Any

from strop.errors import StropError


class RemoteError(StropError):
    """An error of another process that cannot be brought here as it is; says its type, message and traceback."""

    exit_code = 1


@dataclass(frozen=True)
class Failure:
    """An exception on its way."""

    pickled: bytes | None
    """The exception, where it can be pickled and comes back with the same message."""
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Takes an exception apart."""
        trace = "".join(traceback.format_exception(error))
        return cls(_pickled(error), f"{type(error).__name__}: {error}", trace)

    def raised_by(self, name: str) -> BaseException:
        """The exception again, noting where it comes from."""
        if self.pickled is not None:
            error: BaseException = pickle.loads(self.pickled)
        else:
            error = RemoteError(f"{name} failed: {self.text}")
        error.add_note(f"It was raised in {name}:\n{self.trace.rstrip()}")
        return error


def _pickled(error: BaseException) -> bytes | None:
    """The exception as bytes; None where it would not come back the same."""
    try:
        data = pickle.dumps(error.with_traceback(None))
        again = pickle.loads(data)
    except Exception:  # noqa: BLE001 - any exception class may refuse to be pickled in any way
        return None
    return data if type(again) is type(error) and str(again) == str(error) else None


@dataclass(frozen=True)
class Answer:
    """A result, or a failure."""

    result: Any = None
    failure: Failure | None = None
