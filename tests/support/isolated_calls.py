"""What tests call in child processes; imported there, so nothing heavy may be imported here."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def hang_in_c(argument: Any) -> None:
    re.fullmatch(r"(a+)+b", "a" * 40)


def alarm_later(argument: float) -> str:
    """It raises in whatever runs then."""
    signal.signal(signal.SIGALRM, lambda number, frame: 1 // 0)
    signal.setitimer(signal.ITIMER_REAL, argument)
    return "armed"


def exit_later(argument: float) -> str:
    threading.Timer(argument, os._exit, (3,)).start()
    return "armed"


def fork_a_killer(argument: float) -> str:
    parent = os.getpid()
    if os.fork() == 0:
        time.sleep(argument)
        os.kill(parent, signal.SIGKILL)
        os._exit(0)
    return "armed"


def leave_a_thread(argument: float) -> str:
    """It holds the interpreter's lock without end, as a pattern that backtracks does."""
    threading.Timer(argument, hang_in_c, (None,)).start()
    return "armed"


def note(argument: str) -> int:
    """Counts its calls in a file, then crashes."""
    with open(argument, "a") as file:
        file.write("x")
    os._exit(5)


def misbehaving() -> Callable[[str, Any], Any]:
    """The factory of a call that does what it is told."""
    held: list[Any] = []

    def fork_and_return(argument: Any) -> str:
        os.fork()
        return "once"

    def scribble(argument: Any) -> None:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"\xff" * 64)
            except OSError:
                continue

    def forge(argument: str) -> None:
        """Sends the parent an answer of its own making, in every connection that is open."""
        payload = argument.encode()
        for descriptor in range(3, 64):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.sendall(struct.pack("!Q", len(payload)) + payload)

    def start_sleeper(argument: Any) -> int:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

    deeds: dict[str, Callable[[Any], Any]] = {
        "echo": lambda argument: argument,
        "sleep": time.sleep,
        "spin": lambda argument: [None for _ in iter(int, 1)],
        "hang in C": hang_in_c,
        "raise": lambda argument: 1 // 0,
        "exit": sys.exit,
        "_exit": os._exit,
        "segfault": lambda argument: ctypes.string_at(0),
        "kill -9": lambda argument: os.kill(os.getpid(), signal.SIGKILL),
        "hold": lambda argument: held.append(bytearray(argument)),
        "hoard": lambda argument: [held.append(bytearray(2**24)) for _ in iter(int, 1)],
        "print": lambda argument: print(argument, flush=True),
        "scribble": scribble,
        "forge": forge,
        "close all": lambda argument: os.closerange(3, 64),
        "unserialisable": lambda argument: object(),
        "fork": fork_and_return,
        "pid": lambda argument: os.getpid(),
        "modules": lambda argument: sorted(sys.modules),
        "start sleeper": start_sleeper,
        "alarm later": alarm_later,
        "exit later": exit_later,
        "fork a killer": fork_a_killer,
        "leave a thread": leave_a_thread,
        "crash and note": note,
        "nap": lambda argument: time.sleep(argument) or "slept",
        "need": lambda argument: len(bytearray(argument)),
        "keep": lambda argument: held.append(bytearray(argument)) or "kept",
        "interrupt": lambda argument: signal.raise_signal(signal.SIGINT),
    }
    return lambda deed, argument: deeds[deed](argument)


def unloadable() -> Callable[..., Any]:
    """A factory that fails."""
    raise ImportError("no such scorer")


def crashing_at_load() -> Callable[..., Any]:
    """A factory that takes its process with it."""
    os._exit(7)
