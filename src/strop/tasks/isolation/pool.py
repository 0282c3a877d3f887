"""A pool of child processes, for any thread and any event loop."""

import asyncio
import os
import pickle
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from strop.tasks.isolation.lane import Lane
from strop.tasks.isolation.outcome import Factory, Outcome
from strop.tasks.isolation.queue import Call, CallQueue, Job, Target

_CLOSE_SECONDS = 5.0


class Pool:
    """Runs calls in `num_processes` children, each with at most `memory_bytes` of private memory.

    Children start with `warm` or the first call. They end with `close`, with the pool, and with this process,
    however it ends. A call that hangs, crashes or needs too much memory is lost alone.
    """

    def __init__(self, *, num_processes: int, memory_bytes: int) -> None:
        if num_processes < 1:
            raise ValueError(f"num_processes must be at least 1, got {num_processes}")
        self._num_processes = num_processes
        self._memory_bytes = memory_bytes
        self._queue = CallQueue(num_processes)
        self._lanes: list[Lane] = []
        self._targets: dict[bytes, Target] = {}
        self._lock = threading.Lock()
        self.close = weakref.finalize(self, _close, os.getpid(), self._queue, self._lanes)
        """Kills the children, in bounded time; what waits gets an error. It also happens when the pool is dropped."""

    @property
    def pids(self) -> list[int]:
        """The process ids of the children that run."""
        return [lane.pid for lane in self._lanes if lane.pid is not None]

    def warm(self, factory: Factory) -> None:
        """Starts the children and loads the factory in them, without waiting for it."""
        self._start(self._target(factory))

    def submit(
        self, factory: Factory, calls: Sequence[tuple[Any, ...]], *, timeout_seconds: float
    ) -> "Future[list[Outcome]]":
        """Returns a future with one outcome a call, in order; each call has `timeout_seconds` from its own start.

        A call whose arguments cannot be pickled has an error for an outcome. Raises RuntimeError where the pool is
        closed, and what pickling the factory raises.
        """
        job, target = Job(len(calls)), self._target(factory)
        if not calls:
            job.future.set_result([])
            return job.future
        queued = []
        for place, arguments in enumerate(calls):
            pickled = _pickled(arguments)
            if isinstance(pickled, bytes):
                queued.append(Call(job, place, target, pickled, timeout_seconds))
            else:
                job.finish(place, pickled)
        self._start(target)
        self._queue.put(queued)
        return job.future

    async def run(self, factory: Factory, calls: Sequence[tuple[Any, ...]], *, timeout_seconds: float) -> list[Outcome]:
        """`submit` for an event loop, which goes on meanwhile; cancelled, it drops the calls that have not begun."""
        return await asyncio.wrap_future(self.submit(factory, calls, timeout_seconds=timeout_seconds))

    def _target(self, factory: Factory) -> Target:
        pickled = pickle.dumps(factory)
        with self._lock:
            return self._targets.setdefault(pickled, Target(len(self._targets), pickled))

    def _start(self, target: Target) -> None:
        with self._lock:
            while len(self._lanes) < self._num_processes and not self._queue.is_closed:
                lane = Lane(self._queue, self._memory_bytes, early=target)
                self._lanes.append(lane)
                lane.start()


class _SharedPools:
    """The pools that all pure graders of a process share; a fork, in which their lanes do not run, gets its own."""

    def __init__(self) -> None:
        self._pools: dict[tuple[int, int, int], Pool] = {}
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    def get(self, num_processes: int, memory_bytes: int) -> Pool:
        key = (os.getpid(), num_processes, memory_bytes)
        with self._lock:
            if key not in self._pools:
                self._pools[key] = Pool(num_processes=num_processes, memory_bytes=memory_bytes)
            return self._pools[key]

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


_SHARED = _SharedPools()


def shared_pool(num_processes: int, memory_bytes: int) -> Pool:
    """The pool that all pure graders of this process share; it lives as long as the process."""
    return _SHARED.get(num_processes, memory_bytes)


def _pickled(arguments: tuple[Any, ...]) -> bytes | Outcome:
    try:
        return pickle.dumps(arguments)
    except Exception as error:  # noqa: BLE001 - whatever a data row holds: it costs that sample alone
        return Outcome(error=f"the arguments cannot be sent to another process: {type(error).__name__}: {error}")


def _close(owner_pid: int, queue: CallQueue, lanes: list[Lane]) -> None:
    if os.getpid() != owner_pid:
        return  # in a fork: the children are not ours
    queue.close()
    for lane in lanes:
        lane.shoot()
    for lane in lanes:
        if lane is not threading.current_thread():
            lane.join(_CLOSE_SECONDS)
