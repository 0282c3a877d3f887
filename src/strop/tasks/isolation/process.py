"""One child process as its lane sees it: started, asked, waited for within bounds, killed, and explained."""

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from strop.tasks.isolation.frames import MAX_REPLY_BYTES, FrameReader, send_frame

START_SECONDS = 60.0
"""Bound for a bare Python process to come up."""
_SEND_SECONDS = 60.0
"""Bound for an idle child to take a batch."""
_TRACE_SECONDS = 0.5
"""How long a child that is killed may take to tell where it was."""
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from strop.tasks.isolation.child import main; main(*map(int, sys.argv[2:]))"
)


class ChildEnded(Exception):  # noqa: N818 - an event, which may be nobody's fault
    """The child is gone, or sends what is no answer; the text says how it ended."""


class ChildProcess:
    """A child that serves calls. It dies with the thread that makes it, on Linux by the kernel's hand.

    Raises ChildEnded where Python does not come up.
    """

    def __init__(self, memory_bytes: int) -> None:
        own, theirs = socket.socketpair()
        self._connection = own
        self._reader = FrameReader(own, MAX_REPLY_BYTES)
        self._trace = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        path = json.dumps([entry or os.getcwd() for entry in sys.path])
        numbers = (theirs.fileno(), self._trace.fileno(), os.getpid(), memory_bytes)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", _BOOT, path, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=numbers[:2],
                start_new_session=True,
            )
        except OSError as error:
            own.close()
            self._trace.close()
            raise ChildEnded(f"a process for it cannot be started: {error}") from error
        finally:
            theirs.close()
        try:
            self.receive(time.monotonic() + START_SECONDS)
        except TimeoutError as error:
            self.kill()
            raise ChildEnded(f"a fresh Python process must come up within {START_SECONDS:g} seconds") from error

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        """Sends a message to an idle child; raises ChildEnded where it is gone or does not read."""
        self._connection.settimeout(_SEND_SECONDS)
        try:
            send_frame(self._connection, pickle.dumps(message))
        except OSError as error:
            raise ChildEnded(self._ending()) from error

    def receive(self, deadline: float) -> dict[str, Any]:
        """Returns the next answer; raises TimeoutError at `deadline` (time.monotonic), ChildEnded where it is gone."""
        try:
            answer = json.loads(self._reader.next(deadline))
        except EOFError:
            raise ChildEnded(self._ending()) from None
        except (ValueError, RecursionError) as error:
            self.kill()
            raise ChildEnded(f"the process wrote into the connection of its parent: {error}") from error
        if not isinstance(answer, dict):
            self.kill()
            raise ChildEnded("the process wrote into the connection of its parent")
        return answer

    def kill(self) -> str:
        """Kills the process and its group, reaps it, and returns the traceback of where it was, as far as known."""
        if self.is_alive:
            self._signal(signal.SIGABRT)  # faulthandler writes the traceback, whoever holds the interpreter's lock
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_TRACE_SECONDS)
        return self._reap().removeprefix("Fatal Python error: Aborted\n\n")

    def shoot(self) -> None:
        """Sends SIGKILL and returns; any thread may, while the lane that waits for the child reaps it."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Kills without asking for a traceback, and reaps."""
        self._reap()

    def _reap(self) -> str:
        """Ends the whole process group and returns the trace; a second time it does nothing."""
        if self._trace.closed:
            return ""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # whatever the process started, too
        self._process.wait()
        self._connection.close()
        with self._trace:
            self._trace.seek(0)
            return self._trace.read(2**16).decode(errors="replace")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _ending(self) -> str:
        """How the process ended; where it merely closed the connection it is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_TRACE_SECONDS)
        code = self._process.poll()
        trace = self._reap()
        return f"{_told_end(code)}\n{trace}" if trace else _told_end(code)


def _told_end(code: int | None) -> str:
    if code is None:
        return "the process closed the connection to its parent"
    if code >= 0:
        return f"the process left with exit code {code}"
    name = signal.Signals(-code).name
    hint = " (by the system, where memory ran out, or by somebody else)" if -code == signal.SIGKILL else ""
    return f"the process was ended by {name}{hint}"
