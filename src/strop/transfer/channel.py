"""Control messages to an object in another process: a name, a few small arguments, an answer."""

import asyncio
import functools
import inspect
from typing import Any, Protocol


class Channel(Protocol):
    """Calls the methods of an object that lives elsewhere, such as a Ray actor."""

    async def call(self, method: str, *args: Any) -> Any:
        """Calls a method and returns its answer, or raises what it raised. Arguments and answers can be pickled.

        While a plain method runs, a coroutine method of the same object must be able to run beside it.
        """


class LocalChannel:
    """Calls an object in this process: coroutines on the caller's loop, plain methods in a thread."""

    def __init__(self, target: object) -> None:
        self._target = target

    async def call(self, method: str, *args: Any) -> Any:
        """Calls a method of the object."""
        function = getattr(self._target, method)
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        return await asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *args))
