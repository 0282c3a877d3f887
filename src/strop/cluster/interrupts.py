"""Ctrl-C: the first asks the run to stop, the second stops it at once.

What can be repeated exactly (a rollout, an evaluation) is dropped; what changes weights is finished first.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

_FIRST_MESSAGE = b"\nStopping: a rollout is dropped, an update is finished. Ctrl-C again stops at once.\n"
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0
_Result = TypeVar("_Result")


class StopFlag:
    """Whether the run was asked to stop; the trainer reads it between two phases and while it samples."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_set(self) -> bool:
        """Whether the run was asked to stop."""
        return self._event.is_set()

    def set(self) -> None:
        """Asks the run to stop."""
        self._event.set()


@contextmanager
def stop_on_interrupt() -> Iterator[StopFlag]:
    """Lets the first Ctrl-C set the flag and the second raise KeyboardInterrupt, as long as the block runs.

    Outside the main thread, which alone receives signals, the flag can be set by hand only.
    """
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if flag.is_set:
            raise KeyboardInterrupt
        flag.set()
        os.write(2, _FIRST_MESSAGE)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)


async def unless_stopped(work: Coroutine[Any, Any, _Result], stop: StopFlag) -> _Result | None:
    """Returns the result of the work; cancels it as soon as the run is asked to stop, and returns None."""
    task = asyncio.ensure_future(work)
    try:
        while not (task.done() or stop.is_set):
            await asyncio.wait([task], timeout=_LOOK_SECONDS)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=_END_SECONDS)
