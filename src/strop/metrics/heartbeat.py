"""Says what a run does while it is silent.

    phases (caller's thread) --> current activity --> heartbeat thread --> one line

The thread waits for `stop` at most as long as the silence may last; `stop` wakes it at once.
"""

import threading
import time
from collections.abc import Callable


class Heartbeat:
    """Calls `beat` from a thread of its own whenever nothing was heard for `seconds`."""

    def __init__(self, seconds: float, beat: Callable[[], None]) -> None:
        self._seconds = seconds
        self._beat = beat
        self._heard_at = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strop-heartbeat", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def heard(self) -> None:
        """Counts the silence anew: something was printed."""
        self._heard_at = time.monotonic()

    def stop(self) -> None:
        """Ends the thread and waits for it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(max(0.001, self._heard_at + self._seconds - time.monotonic())):
            if time.monotonic() - self._heard_at >= self._seconds:
                self.heard()
                self._beat()
