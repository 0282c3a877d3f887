"""A worker runs blocking calls in a thread of its own, one after another, each within a time limit.

    event loop                       worker thread (daemon)
    run(call) --- queue ----------->  takes the next call
       waits for "started"  <------   says that it starts
       waits for the result <------   outcome, or silence until the time limit

What unblocks the event loop: the outcome, or the time limit, which counts from the start of the call and not from
its place in the queue. A thread cannot be killed: one that runs over its limit is left behind (it is a daemon, so it
does not keep the process alive), and a fresh one goes on with the queue. Calls of one worker never overlap, so a
function need not be thread-safe.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any = None
    error: Exception | None = None


class _Job:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self.loop.create_future()
        self.outcome: asyncio.Future[_Outcome] = self.loop.create_future()

    def post(self, future: asyncio.Future[Any], value: Any) -> None:
        """Sets a future from the worker thread; a loop that closed meanwhile has nobody left who waits."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(_set, future, value)


class BlockingWorker:
    """Runs blocking calls for an event loop; `timeout_seconds` bounds each of them."""

    def __init__(self, name: str, timeout_seconds: float) -> None:
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._generation = 0
        self._has_thread = False

    async def run(self, call: Callable[[], Any]) -> Any:
        """Returns what the call returns and raises what it raises; TimeoutError where it runs over the limit."""
        job = _Job(call)
        self._jobs.put(job)
        self._ensure_thread()
        try:
            await job.started
            await asyncio.wait({job.outcome}, timeout=self._timeout_seconds)
        except asyncio.CancelledError:
            job.outcome.cancel()
            raise
        if not job.outcome.done():
            job.outcome.cancel()
            self._leave_thread_behind()
            raise TimeoutError(f"{self._name} must return within {self._timeout_seconds:g} seconds, and did not")
        outcome = job.outcome.result()
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _ensure_thread(self) -> None:
        if not self._has_thread:
            self._has_thread = True
            thread = threading.Thread(target=self._serve, args=(self._generation,), name=self._name, daemon=True)
            thread.start()

    def _leave_thread_behind(self) -> None:
        self._generation += 1
        self._has_thread = False
        self._ensure_thread()

    def _serve(self, generation: int) -> None:
        while generation == self._generation:
            job = self._jobs.get()
            if not job.outcome.cancelled():
                job.post(job.started, None)
                job.post(job.outcome, _outcome_of(job.call))


def _outcome_of(call: Callable[[], Any]) -> _Outcome:
    try:
        return _Outcome(value=call())
    except Exception as error:  # noqa: BLE001 - the boundary of the thread: the caller raises it again
        return _Outcome(error=error)
    except SystemExit as error:
        return _Outcome(error=RuntimeError(f"the call ended with SystemExit({error.code!r})"))


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
