"""The trusted side of the sandbox: starts a jail for a program, gives it inputs, reads what came of them."""

import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from strop.tasks.isolation.frames import FrameReader, send_frame
from strop.tasks.sandbox.limits import SandboxLevel, SandboxLimits

_START_SECONDS = 30.0
_GRACE_SECONDS = 5.0
"""How much longer than its run the jail may take to answer."""
_MAX_ANSWER_BYTES = 2**27
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from strop.tasks.sandbox.jail import main; del sys.path[0]; "
    "main(int(sys.argv[2]))"
)


class SandboxError(RuntimeError):
    """The sandbox itself does not work; nothing is known of the program."""


class RunEnd(StrEnum):
    """How a run ended."""

    RETURNED = "returned"
    FAILED = "failed"
    """It raised, or left with a code other than 0."""
    OUT_OF_TIME = "out of time"
    KILLED = "killed"
    """By a signal: processor time, memory, a crash."""
    NO_FUNCTION = "no such function"
    NOT_JSON = "a result that is no JSON data"


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one input."""

    end: RunEnd
    stdout: str
    result: str
    """What the function returned, as JSON text written by the untrusted process."""
    detail: str
    """What a person wants to know of an end other than RETURNED."""


class Jail:
    """A jail that is open while the `with` block runs. Raises SandboxError where it cannot be built."""

    def __init__(self, level: SandboxLevel, limits: SandboxLimits) -> None:
        self._limits = limits
        own, theirs = socket.socketpair()
        self._connection = own
        self._reader = FrameReader(own, _MAX_ANSWER_BYTES)
        home = str(Path(__file__).parents[3])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, home, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
                start_new_session=True,
            )
        setup = {
            "level": level.value,
            "limits": asdict(limits),
            "packages": installed_packages(),
            "user": self._process.pid % 1_000_000,
            "parent": os.getpid(),
        }
        ready = self._ask(setup, _START_SECONDS)
        if not ready["ready"]:
            self.close()
            raise SandboxError(f"the sandbox cannot be built with {level}: {ready['error']}")

    @property
    def pid(self) -> int:
        """The process id of the jail, as this machine sees it."""
        return self._process.pid

    def __enter__(self) -> "Jail":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        program: str,
        *,
        stdin: str = "",
        fn_name: str | None = None,
        arguments: Sequence[Any] = (),
        wall_seconds: float | None = None,
    ) -> Run:
        """Runs the program once; raises SandboxError where the jail does not answer."""
        seconds = self._limits.wall_seconds if wall_seconds is None else wall_seconds
        request = {"program": program, "stdin": stdin, "fn_name": fn_name, "arguments": list(arguments)}
        answer = self._ask({**request, "wall_seconds": seconds}, seconds + _GRACE_SECONDS)
        return _run(answer)

    def close(self) -> None:
        """Kills the jail and all that runs in it."""
        self._connection.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()

    def _ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        self._connection.settimeout(seconds)
        try:
            send_frame(self._connection, json.dumps(message).encode())
            answer: dict[str, Any] = json.loads(self._reader.next(time.monotonic() + seconds))
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise SandboxError(f"the jail must answer within {seconds:g} seconds, got {error!r}") from error
        return answer


def installed_packages() -> list[str]:
    """The folders of installed packages, which programs may import."""
    return sorted({path for name in ("purelib", "platlib") if os.path.isdir(path := sysconfig.get_path(name))})


def _run(answer: dict[str, Any]) -> Run:
    if answer["unconfined"] is not None:
        raise SandboxError(answer["unconfined"])
    code = answer["exit"]
    match code:
        case None:
            end, detail = RunEnd.OUT_OF_TIME, f"after {answer['wall_seconds']:.1f} s"
        case 0:
            end, detail = RunEnd.RETURNED, ""
        case 97:
            end, detail = RunEnd.NO_FUNCTION, ""
        case 98:
            end, detail = RunEnd.NOT_JSON, ""
        case _ if code < 0:
            end, detail = RunEnd.KILLED, f"by signal {-code} after {answer['cpu_seconds']:.1f} s of processor time"
        case _:
            lines = answer["stderr"].strip().splitlines() or [f"exit code {code}"]
            end, detail = RunEnd.FAILED, lines[-1]
    return Run(end, answer["stdout"], answer["result"], detail)
