"""A reward function of the user's inside a child process: described once, then called.

Runs in children of `isolation`; imports nothing heavy. What it gives back is JSON data.
"""

import inspect
from collections.abc import Callable
from typing import Any

from strop.tasks.load_function import FunctionError, load_function, source_digest
from strop.tasks.returned import Returned, read_list, read_number


def describing(location: str) -> Callable[[], dict[str, Any]]:
    """The factory of a call that loads the function and describes it."""

    def describe() -> dict[str, Any]:
        try:
            function = load_function(location)
            parameters = inspect.signature(function).parameters.values()
        except FunctionError as error:
            return {"problem": str(error)}
        except (TypeError, ValueError) as error:
            return {"problem": f"rewards.function must be a Python function with a signature, got {location}: {error}"}
        return {
            "problem": None,
            "parameters": [(p.name, p.kind.name, p.default is not inspect.Parameter.empty) for p in parameters],
            "is_async": is_async(function),
            "digest": source_digest(location),
        }

    return describe


def calling(location: str, digest: str | None) -> Callable[[dict[str, Any], int | None], list[Returned]]:
    """The factory of the calls.

    Raises FunctionError where the file is not the one that was described: a run has one reward, whatever is edited
    meanwhile.
    """
    if source_digest(location) != digest:
        raise FunctionError(
            f"the file of {location} must stay as it was when the run began, got another text", "Restart the run."
        )
    function = load_function(location)

    def call(arguments: dict[str, Any], num_samples: int | None) -> list[Returned]:
        """One value a sample; `num_samples` is None for a function that judges one sample."""
        returned = function(**arguments)
        return [read_number(returned)] if num_samples is None else read_list(returned, num_samples)

    return call


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calls must be awaited: an async function, or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
