"""The actor that hosts one object: made by a factory, called by name.

Coroutines run on the actor's event loop, so that an engine may serve many calls at once. Everything else runs in one
thread, one call at a time, and the actor still answers while it computes. Ray may hand over calls that were begun
together in another order: whoever needs an order, as collectives of several ranks do, waits for each answer.
"""

import asyncio
import functools
import inspect
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from strop.cluster.ray.answers import Answer, Failure


class Host:
    """Runs inside a Ray actor."""

    def __init__(self, name: str, log_file: str | None) -> None:
        if log_file is not None:
            _write_to(log_file)
        print(f"{name} is process {os.getpid()} on {os.uname().nodename}", flush=True)  # noqa: T201 - into its log
        self.name = name
        self._made: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def make(self, factory: Callable[[], Any]) -> Answer:
        """Makes the object; what goes wrong is an answer, so that the actor lives to tell it."""
        return await self._answered(functools.partial(self._keep, factory))

    def _keep(self, factory: Callable[[], Any]) -> None:
        self._made = factory()

    async def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
        """Calls a method of the object."""
        return await self._answered(functools.partial(getattr(self._made, method), *args, **kwargs))

    async def node(self) -> tuple[str, int]:
        """Where it runs: host name and process id."""
        return os.uname().nodename, os.getpid()

    async def _answered(self, work: Callable[[], Any]) -> Answer:
        try:
            if inspect.iscoroutinefunction(getattr(work, "func", work)):
                return Answer(await work())
            return Answer(await asyncio.get_running_loop().run_in_executor(self._thread, work))
        except Exception as error:  # noqa: BLE001 - the border of the process: the caller raises it again
            return Answer(failure=Failure.of(error))


def _write_to(log_file: str) -> None:
    """Sends everything that this process prints to a file, whatever prints it."""
    os.makedirs(os.path.dirname(log_file), exist_ok=True)
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
