"""A lane: one thread, one child, batches of calls.

    take a batch --> send it --> answer, answer, ... --> take the next
                        |
                        | no answer in time: kill;  end of the child: reap
                        v
        the call that ran is lost with its reason, the calls behind it go back to the queue, a new child starts

A call may leave something behind that goes off later: a thread, a fork, kept memory. So a call whose child ended under
it (or that ran out of time beside threads that others left) is not lost at once where the child had served others:
it is repeated in a fresh one, and what happens there is its own doing.

What ends each wait: `take` ends when the queue closes; an answer must come within the time limit of the call that runs;
loading within LOAD_SECONDS; a start within START_SECONDS. The thread lives as long as its child, because the kernel
kills the child when that thread ends.
"""

import math
import threading
import time
from collections import deque
from dataclasses import replace
from typing import Any

from strop.tasks.isolation.outcome import Outcome
from strop.tasks.isolation.process import ChildEnded, ChildProcess
from strop.tasks.isolation.queue import Call, CallQueue, Target

LOAD_SECONDS = 300.0
"""Bound for loading what is called: a user's module may read a model."""


class Lane(threading.Thread):
    """Serves a queue with one child."""

    def __init__(self, queue: CallQueue, memory_bytes: int, early: Target | None = None) -> None:
        """`early` is loaded before the first call comes."""
        super().__init__(name="strop isolation lane", daemon=True)
        self._queue = queue
        self._memory_bytes = memory_bytes
        self._early = early
        self._child: ChildProcess | None = None
        self._load_errors: dict[int, str | None] = {}
        """What this child has loaded, with the reason where it cannot."""
        self._num_served = 0
        """Calls that this child has answered."""
        self._has_threads = False
        """Whether the last of them left threads running."""

    @property
    def pid(self) -> int | None:
        """The process id of the child; None while there is none."""
        return None if self._child is None else self._child.pid

    def shoot(self) -> None:
        """Kills the child, from any thread, so that the lane wakes."""
        child = self._child
        if child is not None:
            child.shoot()

    def run(self) -> None:
        """Serves until the queue closes; the child is gone afterwards."""
        batch: list[Call] = []
        try:
            if self._early is not None:
                self._warm(self._early)
            while batch := self._queue.take():
                self._serve(batch)
        except BaseException as error:
            self._queue.fail(error, batch)
            raise
        finally:
            self._drop_child()

    def _warm(self, target: Target) -> None:
        """Starts and loads ahead of the calls; what fails here fails again with the first call, and is told there."""
        try:
            self._load(self._ready_child(), target)
        except (ChildEnded, TimeoutError):
            self._drop_child()

    def _serve(self, batch: list[Call]) -> None:
        running = deque(batch)
        is_doubtful = False
        try:
            child = self._ready_child()
            problem = self._load(child, batch[0].target)
            if problem is None:
                child.send(("call", [(place, call.target.number, call.arguments) for place, call in enumerate(batch)]))
                self._collect(child, running)
        except ChildEnded as error:
            problem, is_doubtful = str(error), self._num_served > 0
            self._drop_child()
        if problem is not None:
            self._lose(running, problem, is_doubtful=is_doubtful)

    def _collect(self, child: ChildProcess, running: "deque[Call]") -> None:
        """Takes the answers of a batch; each call has its limit from the answer before it."""
        num_calls = len(running)
        while running:
            call = running[0]
            started = time.monotonic()
            try:
                answer = child.receive(started + call.timeout_seconds)
            except TimeoutError:
                problem = f"must return within {call.timeout_seconds:g} seconds, and did not; it was killed"
                trace, is_doubtful = child.kill(), self._has_threads
                self._drop_child()
                seconds = time.monotonic() - started
                self._lose(running, f"{problem}{_where(trace)}\n{trace}", seconds, is_doubtful=is_doubtful)
                return
            if not _is_answer(answer, num_calls - len(running)):
                child.kill()
                raise ChildEnded("the process wrote into the connection of its parent")
            call.target.measured(answer["seconds"])
            if answer["is_last"]:
                is_doubtful = self._num_served > 0
                self._drop_child()
                self._lose(running, answer["error"], answer["seconds"], is_doubtful=is_doubtful)
                return
            running.popleft().finish(Outcome(answer.get("value"), answer.get("error"), answer["seconds"]))
            self._num_served += 1
            self._has_threads = answer["threads"] > 0

    def _lose(self, running: "deque[Call]", problem: str, seconds: float = 0.0, *, is_doubtful: bool = False) -> None:
        """The call that ran is lost, or repeated once where it may not be at fault; those behind it wait again."""
        call = running.popleft()
        if is_doubtful and not call.is_repeated:
            running.appendleft(replace(call, is_repeated=True))
        else:
            call.finish(Outcome(error=problem, seconds=seconds))
        if running:
            self._queue.put_back(list(running))

    def _ready_child(self) -> ChildProcess:
        if self._child is not None and not self._child.is_alive:
            self._drop_child()
        if self._child is None:
            self._child = ChildProcess(self._memory_bytes)
        return self._child

    def _load(self, child: ChildProcess, target: Target) -> str | None:
        """Makes the child load a target once; returns why it cannot, or None."""
        if target.number not in self._load_errors:
            child.send(("load", target.number, target.factory))
            self._load_errors[target.number] = _load_error(child)
        return self._load_errors[target.number]

    def _drop_child(self) -> None:
        child, self._child = self._child, None
        self._load_errors.clear()
        self._num_served, self._has_threads = 0, False
        if child is not None:
            child.close()


def _is_answer(answer: dict[str, Any], call: int) -> bool:
    """Whether this is what a child sends behind its call of this number: what the user's code wrote may be anything."""
    seconds, threads, error = answer.get("seconds"), answer.get("threads"), answer.get("error")
    is_timed = isinstance(seconds, int | float) and 0 <= seconds < math.inf
    is_ended = answer.get("is_last") is False or (answer.get("is_last") is True and error is not None)
    is_told = error is None or isinstance(error, str)
    return answer.get("call") == call and is_timed and isinstance(threads, int) and is_ended and is_told


def _where(trace: str) -> str:
    """The innermost line of a faulthandler's traceback, as words behind a sentence; nothing where there is none."""
    _, _, current = trace.rpartition("Current thread")
    line = next((line for line in current.splitlines() if line.startswith("  File ")), None)
    return "" if line is None else f" in {line.strip().removeprefix('File ')}"


def _load_error(child: ChildProcess) -> str | None:
    try:
        answer: dict[str, Any] = child.receive(time.monotonic() + LOAD_SECONDS)
    except TimeoutError:
        raise ChildEnded(f"what is called must load within {LOAD_SECONDS:g} seconds, and did not") from None
    except ChildEnded as error:
        raise ChildEnded(f"while it was loaded: {error}") from error
    if "loaded" not in answer and not isinstance(answer.get("error"), str):
        raise ChildEnded("while it was loaded: the process wrote into the connection of its parent")
    return None if "loaded" in answer else f"cannot be loaded: {answer['error']}"
