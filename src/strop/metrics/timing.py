"""Measures how long each phase of a step takes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strop.metrics.metric import Metrics, maximum


class PhaseClock:
    """Adds up the seconds of named phases, each second counted once.

    A phase inside another one pauses it, so that the phases never add up to more than the time that passed.
    One thread drives the clock.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._running: list[str] = []
        self._seconds: dict[str, float] = {}
        self._read_at = self._taken_at = now()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside the block for `name`."""
        self._book_elapsed()
        self._running.append(name)
        try:
            yield
        finally:
            self._book_elapsed()
            if self._running.pop() != name:
                raise RuntimeError(f"phases must end in the reverse order of their beginning, got an end of {name}")

    def take(self) -> Metrics:
        """Returns `timing/<phase>_seconds` and `timing/step_seconds` since the last call, and begins anew."""
        self._book_elapsed()
        metrics = {f"timing/{name}_seconds": maximum(seconds, "s") for name, seconds in self._seconds.items()}
        metrics["timing/step_seconds"] = maximum(self._read_at - self._taken_at, "s")
        self._seconds, self._taken_at = {}, self._read_at
        return metrics

    def _book_elapsed(self) -> None:
        now = self._now()
        if self._running:
            name = self._running[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._read_at
        self._read_at = now
