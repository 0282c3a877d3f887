"""The command line in child processes that can be killed, interrupted and starved, without seconds of imports each.

A fork server imports strop once; every child is a fork of it, hence a process of its own with nothing shared.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["strop.api", "strop.cli.main", "strop.trainers.launch"])


class Child:
    """`strop ARGUMENTS...` in a process of its own, whose output goes to a file."""

    def __init__(self, arguments: list[str], output: Path, *, largest_file_bytes: int | None = None) -> None:
        self._output = output
        # not a daemon: an own exit code and own threads
        self._process: BaseProcess = _CONTEXT.Process(
            target=_run_command_line, args=(arguments, str(output), largest_file_bytes)
        )
        self._process.start()

    def kill(self) -> bool:
        """Kills the process as `kill -9` does; says whether it was still running."""
        self._process.kill()
        self._process.join()
        return self._process.exitcode == -signal.SIGKILL

    def interrupt(self) -> None:
        """Presses Ctrl-C."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGINT)

    def wait(self, timeout_seconds: float = 120) -> int:
        """Waits for the end and returns the exit code; the output tells more where it takes too long."""
        self._process.join(timeout_seconds)
        if self._process.exitcode is None:
            self._process.kill()
            raise TimeoutError(f"no end within {timeout_seconds} s:\n{self.output}")
        return self._process.exitcode

    def wait_for(self, text: str, timeout_seconds: float = 60) -> None:
        """Waits until the output holds a text."""
        deadline = time.monotonic() + timeout_seconds
        while text not in self.output:
            if time.monotonic() > deadline or self._process.exitcode is not None:
                raise TimeoutError(f"the output must hold {text!r}, got:\n{self.output}")
            time.sleep(0.01)

    @property
    def output(self) -> str:
        """What was printed so far."""
        return self._output.read_text(encoding="utf-8", errors="replace") if self._output.exists() else ""


def _run_command_line(arguments: list[str], output: str, largest_file_bytes: int | None) -> None:
    """Runs in the child."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    if largest_file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))
    from strop.cli.main import main

    sys.argv = ["strop", *arguments]
    main()
