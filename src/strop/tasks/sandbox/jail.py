"""The jail: a process that holds the sandbox and runs a program in it, one test after another.

    grader's process --(socket: program, then inputs)--> jail --fork--> run --(exit code, bytes)--> jail --> grader

The jail is started with an empty environment and gets the program and its inputs, never what is expected of it. With
namespaces it is process 1 of its own, so that all that a run left behind dies with it. The run has no way to the
socket: its descriptors are closed, it may not open others, and it may not touch the jail's memory.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

from strop.tasks.isolation.frames import FrameReader, send_frame
from strop.tasks.sandbox.confine import SCRATCH, confine, die_with_parent, enter_namespaces
from strop.tasks.sandbox.limits import SandboxLevel, SandboxLimits
from strop.tasks.sandbox.program import GIVEN_MODULES, RAISED, RESULT_FD, run_program

_SHOWN_BYTES = 2000
_TELLING_FD = RESULT_FD + 1
"""A run tells here that it is confined, and closes it before the program's code runs."""
_CONFINED = b"confined"
_WARM = (*GIVEN_MODULES, "copy", "io", "random", "re", "string")


def main(control_fd: int) -> NoReturn:
    """Serves runs until the connection closes."""
    os.umask(0o022)
    connection = socket.socket(fileno=control_fd)
    reader = FrameReader(connection)
    setup = json.loads(reader.next())
    level, limits = SandboxLevel(setup["level"]), SandboxLimits(**setup["limits"])
    for name in _WARM:
        __import__(name)
    with suppress(OSError):
        die_with_parent()
    if os.getppid() != setup["parent"]:
        os._exit(0)
    try:
        if level is SandboxLevel.NAMESPACES:
            enter_namespaces(limits, setup["packages"])
            _continue_as_process_one()
        _say(connection, {"ready": True})
    except OSError as error:
        _say(connection, {"ready": False, "error": str(error)})
        os._exit(1)
    runs = _Runs(level, limits, setup["user"], setup["packages"])
    try:
        while True:
            _say(connection, runs.run(json.loads(reader.next())))
    except (EOFError, OSError):
        os._exit(0)


def _say(connection: socket.socket, message: dict[str, Any]) -> None:
    send_frame(connection, json.dumps(message).encode())


def _continue_as_process_one() -> None:
    """Forks; the child goes on, the parent waits for it and ends as it does."""
    child = os.fork()
    if child == 0:
        die_with_parent()
        return
    os.closerange(3, 4096)
    os.waitpid(child, 0)
    os._exit(0)


class _Runs:
    def __init__(self, level: SandboxLevel, limits: SandboxLimits, user: int, packages: list[str]) -> None:
        self._level = level
        self._limits = limits
        self._user = user
        self._packages = packages

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one test in a fork and tells how it ended and what it wrote."""
        names = ("stdin", "stdout", "stderr", "result")
        files = {name: os.memfd_create(name, os.MFD_CLOEXEC) for name in names}
        told, telling = os.pipe()
        files |= {"told": told, "telling": telling}
        try:
            _fill(files["stdin"], request["stdin"])
            jail = os.getpid()
            child = os.fork()
            if child == 0:
                self._become_run(jail, request, files)
            os.close(files.pop("telling"))
            end = self._wait(child, request["wall_seconds"])
            end["unconfined"] = _unconfined(os.read(told, _SHOWN_BYTES), is_over=end["exit"] is not None)
            stdout, result = (self._read(files[name], self._limits.output_bytes) for name in ("stdout", "result"))
            return {**end, "stdout": stdout, "result": result, "stderr": self._read(files["stderr"], _SHOWN_BYTES)}
        finally:
            for descriptor in files.values():
                os.close(descriptor)

    def _become_run(self, jail: int, request: dict[str, Any], files: dict[str, int]) -> NoReturn:
        telling = files["telling"]
        try:
            os.setsid()
            moved = [os.dup(files[name]) for name in ("stdin", "stdout", "stderr", "result", "telling")]
            for place, descriptor in enumerate(moved):
                os.dup2(descriptor, place)
            telling = _TELLING_FD
            os.closerange(_TELLING_FD + 1, 4096)
            os.environ.clear()
            os.environ.update({"HOME": SCRATCH, "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
            os.chdir(SCRATCH if self._level is SandboxLevel.NAMESPACES else "/")
            sys.argv = ["solution.py"]
            sys.path[:] = [path for path in sys.path if path] + self._packages
            die_with_parent()
            confine(self._level, self._limits, self._user, self._packages)
            if os.getppid() != jail:
                os._exit(RAISED)
            os.write(_TELLING_FD, _CONFINED)
            os.close(_TELLING_FD)
        except BaseException as error:  # noqa: BLE001 - nothing may run unconfined
            os.write(telling, f"the sandbox could not be closed: {error}".encode())
            os._exit(RAISED)
        try:
            run_program(request["program"], request["fn_name"], request["arguments"])
        finally:
            os._exit(RAISED)  # whatever the program did to its interpreter, it does not come back into the jail

    def _wait(self, child: int, wall_seconds: float) -> dict[str, Any]:
        start = time.monotonic()
        watched = select.poll()
        descriptor = os.pidfd_open(child)
        watched.register(descriptor, select.POLLIN)
        is_over = bool(watched.poll(wall_seconds * 1000))
        os.close(descriptor)
        with suppress(ProcessLookupError):
            os.kill(-1 if os.getpid() == 1 else child, signal.SIGKILL)  # as process 1: everybody that is left
        _, status, usage = os.wait4(child, 0)
        while os.getpid() == 1 and _reap():
            pass
        seconds = {"wall_seconds": time.monotonic() - start, "cpu_seconds": usage.ru_utime + usage.ru_stime}
        return {"exit": os.waitstatus_to_exitcode(status) if is_over else None, **seconds}

    def _read(self, descriptor: int, most_bytes: int) -> str:
        return os.pread(descriptor, most_bytes, 0).decode(errors="replace")


def _fill(descriptor: int, text: str) -> None:
    data = text.encode(errors="surrogateescape")
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)


def _unconfined(told: bytes, *, is_over: bool) -> str | None:
    """Why the program's code was not reached; None where it was, or where time ran out before."""
    if told == _CONFINED or not (told or is_over):
        return None
    return told.decode(errors="replace") or "the run ended before it was confined"


def _reap() -> bool:
    try:
        return os.waitpid(-1, 0)[0] > 0
    except ChildProcessError:
        return False
