"""Ctrl-C: the first asks the run to stop between two phases, the second stops it at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_FIRST_MESSAGE = b"\nStopping after this phase, with a checkpoint. Ctrl-C again stops at once.\n"


class StopFlag:
    """Whether the run was asked to stop; the trainer reads it between two phases."""

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
