"""Calls that wait for a lane, in order, and the jobs that they belong to."""

import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from strop.tasks.isolation.outcome import Outcome

_BATCH_SECONDS = 0.02
"""A batch holds about as much work as this."""
_MOST_CALLS = 64


class Target:
    """What is called: its factory, and how long its calls take."""

    def __init__(self, number: int, factory: bytes) -> None:
        self.number = number
        self.factory = factory
        self._mean_seconds = _BATCH_SECONDS

    def measured(self, seconds: float) -> None:
        """Takes a call into the running mean."""
        self._mean_seconds += 0.5 * (seconds - self._mean_seconds)

    @property
    def batch_calls(self) -> int:
        """How many calls go to a child at once."""
        return max(1, min(_MOST_CALLS, int(_BATCH_SECONDS / max(self._mean_seconds, 1e-9))))


@dataclass
class Job:
    """Calls that were submitted together; `future` gets their outcomes in order."""

    num_calls: int
    future: "Future[list[Outcome]]" = field(default_factory=Future)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def finish(self, place: int, outcome: Outcome) -> None:
        """Notes the outcome of one call; the last one completes the future."""
        with self._lock:
            self.outcomes[place] = outcome
            is_complete = len(self.outcomes) == self.num_calls
        if is_complete:
            with suppress(InvalidStateError):  # cancelled: nobody waits
                self.future.set_result([self.outcomes[place] for place in range(self.num_calls)])

    def fail(self, error: BaseException) -> None:
        """Makes whoever waits for the job raise."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(frozen=True)
class Call:
    """One call of a job."""

    job: Job
    place: int
    target: Target
    arguments: bytes
    """Pickled."""
    timeout_seconds: float
    is_repeated: bool = False
    """Whether it was lost once in a process that others had used before."""

    def finish(self, outcome: Outcome) -> None:
        """Gives the outcome to the job."""
        self.job.finish(self.place, outcome)


class CallQueue:
    """Hands calls to lanes. A lane waits in `take` for calls, or for `close`."""

    def __init__(self, num_lanes: int) -> None:
        self._num_lanes = num_lanes
        self._calls: deque[Call] = deque()
        self._condition = threading.Condition()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether no more calls are taken or handed out."""
        return self._is_closed

    def put(self, calls: list[Call]) -> None:
        """Adds calls at the end; raises RuntimeError where the queue is closed."""
        with self._condition:
            if self._is_closed:
                raise RuntimeError("a closed pool takes no calls")
            self._calls.extend(calls)
            self._condition.notify(min(len(calls), self._num_lanes))

    def put_back(self, calls: list[Call]) -> None:
        """Puts calls that were taken and not begun back to the front."""
        with self._condition:
            if not self._is_closed:
                self._calls.extendleft(reversed(calls))
                self._condition.notify(min(len(calls), self._num_lanes))
                return
        _refuse(calls)

    def take(self) -> list[Call]:
        """Waits for calls and returns some of one target; an empty list says that the queue is closed."""
        with self._condition:
            while True:
                if self._is_closed:
                    return []
                batch = self._pop()
                if batch:
                    return batch
                self._condition.wait()

    def close(self) -> None:
        """Refuses what waits, and wakes every lane."""
        with self._condition:
            self._is_closed = True
            calls = list(self._calls)
            self._calls.clear()
            self._condition.notify_all()
        _refuse(calls)

    def fail(self, error: BaseException, running: list[Call]) -> None:
        """Raises a fault of this program at everybody who waits, and closes."""
        with self._condition:
            waiting, self._calls = list(self._calls), deque()
            self._is_closed = True
            self._condition.notify_all()
        for call in [*running, *waiting]:
            call.job.fail(error)

    def _pop(self) -> list[Call]:
        batch: list[Call] = []
        share = -(-len(self._calls) // self._num_lanes)
        while self._calls and (not batch or len(batch) < min(share, batch[0].target.batch_calls)):
            if batch and self._calls[0].target is not batch[0].target:
                break
            call = self._calls.popleft()
            if not call.job.future.cancelled():
                batch.append(call)
        return batch


def _refuse(calls: list[Call]) -> None:
    for call in calls:
        call.finish(Outcome(error="the pool was closed before the call began"))
