"""What the run is doing at this moment, in words."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Detail = str | Callable[[], str]
"""What a phase waits for: a text, or a function that gives one; it is called from another thread."""


@dataclass(frozen=True, slots=True)
class _Phase:
    name: str
    detail: Detail
    began_at: float


class Activity:
    """The phase that runs and what it waits for; written by one thread, read by another."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phases: tuple[_Phase, ...] = ()

    @contextmanager
    def phase(self, name: str, detail: Detail) -> Iterator[None]:
        """Makes `name` the phase that runs inside the block."""
        outer = self._phases
        self._phases = (*outer, _Phase(name, detail, self._now()))
        try:
            yield
        finally:
            self._phases = outer

    def __str__(self) -> str:
        phases = self._phases
        if not phases:
            return "between phases"
        phase = phases[-1]
        detail = phase.detail if isinstance(phase.detail, str) else phase.detail()
        return f"{phase.name} for {self._now() - phase.began_at:.0f} s" + (f": {detail}" if detail else "")
