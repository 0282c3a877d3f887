"""The child: reads frames, calls, answers. Started by `process.py`; imports the standard library alone.

    ("load", target, factory)            -> {"loaded": target} or {"failed": target, "error": text}
    ("call", [(call, target, arguments)]) -> for each, at once: {"call": n, "seconds": s, "value": v} or "error"

What a function prints goes to the parent's stderr. A call that raises is answered with its traceback; after a
MemoryError the child says "is_last" and ends, since nobody knows what state it is in. Before an answer the alarm and
the interval timers are switched off, lest they go off in another call; "threads" counts what a call left running.
"""

import ctypes
import faulthandler
import json
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from strop.tasks.isolation.frames import FrameReader, send_frame
from strop.tasks.isolation.told import told

_PR_SET_PDEATHSIG = 1
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
"""`signal.alarm` is the first of these."""


def main(control_fd: int, trace_fd: int, parent_pid: int, memory_bytes: int) -> NoReturn:
    """Serves calls until the parent closes the connection."""
    die_with_parent(parent_pid)
    limit_memory(memory_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(file=trace_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)
    try:
        _Server(connection).serve()
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone or has closed the pool: nobody waits for exit handlers of user code


def die_with_parent(parent_pid: int) -> None:
    """Makes the kernel kill this process when the thread that started it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)


def limit_memory(memory_bytes: int) -> None:
    """Bounds the private writable memory of this process.

    RLIMIT_DATA rather than RLIMIT_AS: CUDA and others reserve far more address space than they use.
    """
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    _, hard = resource.getrlimit(kind)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(kind, (limit, limit))


class _Server:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = FrameReader(connection)
        self._targets: dict[int, Callable[..., Any]] = {}
        self._pid = os.getpid()
        self._num_threads = threading.active_count()
        """Threads that belong to what was loaded."""

    def serve(self) -> NoReturn:
        self._send({"ready": self._pid})
        while True:
            message = pickle.loads(self._reader.next())
            match message:
                case ("load", target, factory):
                    self._send(self._load(target, factory))
                case ("call", calls):
                    for call, target, arguments in calls:
                        self._call(call, self._targets[target], arguments)

    def _load(self, target: int, factory: bytes) -> dict[str, Any]:
        try:
            self._targets[target] = pickle.loads(factory)()
        except BaseException as error:  # noqa: BLE001 - the boundary of the process: the parent gets the text
            return {"failed": target, "error": told(error)}
        self._num_threads = threading.active_count()
        return {"loaded": target}

    def _call(self, call: int, function: Callable[..., Any], arguments: bytes) -> None:
        start = time.perf_counter()
        is_spent = False
        answer: dict[str, Any]
        try:
            answer = {"value": function(*pickle.loads(arguments))}
            _disarm()
        except BaseException as error:  # noqa: BLE001 - the boundary of the process: the parent gets the text
            _disarm()
            is_spent = isinstance(error, MemoryError)
            answer = {"error": told(error)}
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that the function made and let return
        facts = {
            "call": call,
            "seconds": time.perf_counter() - start,
            "is_last": is_spent,
            "threads": max(0, threading.active_count() - self._num_threads),
        }
        try:
            self._send(answer | facts)
        except (TypeError, ValueError, RecursionError) as error:
            self._send(facts | {"error": told(error)})
        if is_spent:
            os._exit(0)

    def _send(self, answer: dict[str, Any]) -> None:
        send_frame(self._connection, json.dumps(answer).encode())


def _disarm() -> None:
    """Switches off what would raise a signal later."""
    for timer in _TIMERS:
        signal.setitimer(timer, 0)
