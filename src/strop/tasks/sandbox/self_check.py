"""Finds out what the machine can hold, by trying to escape.

A level counts only where a harmless program runs in it and everything that must not work does not. What was asked of
the kernel is not believed: what a program can do is.
"""

import contextlib
import functools
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from strop.errors import ConfigError
from strop.tasks.sandbox.client import Jail, RunEnd, SandboxError
from strop.tasks.sandbox.limits import SandboxLevel, SandboxLimits

_LEVELS = (SandboxLevel.NAMESPACES, SandboxLevel.LANDLOCK)
_LIMITS = SandboxLimits(wall_seconds=20.0, cpu_seconds=20, memory_bytes=2**29)
_HARMLESS = "import json, math; print(json.dumps({'sum': math.fsum([0.5] * 4)}))"
_ESCAPES = """
import json, os, struct
facts = json.loads(input())
escaped = []

def attempt(name, deed):
    try:
        if deed() is not False:
            escaped.append(name)
    except Exception:
        pass

def connect():
    import socket
    with socket.create_connection(("127.0.0.1", facts["port"]), 1):
        pass

def fork():
    if os.fork() == 0:
        os._exit(0)

def write(path):
    with open(path, "w") as file:
        file.write("x")
    os.remove(path)

def empty_by_opening():
    os.close(os.open(facts["secret"], os.O_RDONLY | os.O_TRUNC))

def order_signals(command, argument):
    import fcntl
    fcntl.fcntl(os.pipe()[0], command, argument)

def own_socket(command):
    import fcntl, socket
    pair = socket.socketpair()
    fcntl.ioctl(pair[0], command, struct.pack("i", os.getpid()))

def make_datagrams():
    import socket
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

def send():
    make_datagrams()[0].sendto(b"x", facts["socket"])

attempt("read a file of the machine", lambda: open(facts["secret"]).read())
attempt("read the environment of the parent", lambda: open(f"/proc/{facts['parent']}/environ").read())
attempt("read the memory of processes", lambda: open(f"/proc/{os.getppid()}/mem", "rb").close())
attempt("see the variables of the parent", lambda: bool(os.environ.get("STROP_SANDBOX_CANARY")))
attempt("write beside a file of the machine", lambda: write(facts["secret"] + ".new"))
attempt("write to the root", lambda: write("/strop-sandbox-check"))
attempt("write to the standard library", lambda: write(os.__file__ + ".new"))
attempt("truncate a file of the machine", lambda: os.truncate(facts["secret"], 0))
attempt("empty a file of the machine by opening it", empty_by_opening)
attempt("change the mode of a file", lambda: os.chmod(facts["secret"], 0o644))
attempt("connect to a port of the machine", connect)
attempt("send to a socket of the machine", send)
attempt("make sockets that can name a receiver", make_datagrams)
attempt("start a process", fork)
attempt("signal the parent", lambda: os.kill(facts["parent"], 0))
attempt("signal its group", lambda: os.kill(0, 0))
attempt("signal everybody", lambda: os.kill(-1, 0))
owner = struct.pack("2i", 1, os.getpid())
attempt("choose who gets signals of a file (F_SETOWN)", lambda: order_signals(8, os.getpid()))
attempt("choose who gets signals of a file (F_SETOWN_EX)", lambda: order_signals(15, owner))
attempt("choose which signals a file sends (F_SETSIG)", lambda: order_signals(10, 9))
attempt("choose who gets signals of a socket (FIOSETOWN)", lambda: own_socket(0x8901))
attempt("choose who gets signals of a socket (SIOCSPGRP)", lambda: own_socket(0x8902))
attempt("use more memory than allowed", lambda: len(bytearray(facts["memory_bytes"])))
attempt("raise its limits", lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_AS, (-1, -1)))
print(json.dumps(escaped), flush=True)
attempt("run another program", lambda: os.execv("/bin/echo", ["echo", "run another program"]))
"""


class NoSandboxError(ConfigError):
    """The platform gives no isolation."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What a level held, where it was tried."""

    level: SandboxLevel
    problem: str | None
    """Why it does not count; None where it does."""


def strongest_level() -> SandboxLevel:
    """The strongest level that holds here; raises NoSandboxError, saying why, where none does."""
    checks = []
    for level in _LEVELS:
        checks.append(check_level(level))
        if checks[-1].problem is None:
            return level
    told = "; ".join(f"{check.level}: {check.problem}" for check in checks)
    raise NoSandboxError(
        f"code rewards need a sandbox of the operating system, got none that holds on this machine ({told})",
        "Run on Linux with user namespaces or Landlock, use a remote sandbox (`remote_url`), or set "
        "`allow_unsandboxed` to run the policy's programs with your own rights.",
    )


@functools.cache
def check_level(level: SandboxLevel) -> SelfCheck:
    """Tries to escape from a level; once in a process."""
    if os.name != "posix" or os.uname().sysname != "Linux":
        return SelfCheck(level, "it needs Linux")
    try:
        with _bait() as facts, Jail(level, _LIMITS) as jail:
            harmless = jail.run(_HARMLESS)
            if harmless.end is not RunEnd.RETURNED or json.loads(harmless.stdout) != {"sum": 2.0}:
                return SelfCheck(level, f"a harmless program does not run: {harmless.detail or harmless.end}")
            tried = jail.run(_ESCAPES, stdin=json.dumps(facts))
    except (SandboxError, OSError) as error:
        return SelfCheck(level, str(error))
    if tried.end is not RunEnd.RETURNED:
        return SelfCheck(level, f"the check did not end: {tried.detail or tried.end}")
    told, *more = tried.stdout.splitlines()
    escaped = [*json.loads(told), *more]
    return SelfCheck(level, f"a program could {', '.join(escaped)}" if escaped else None)


@contextlib.contextmanager
def _bait() -> Iterator[dict[str, object]]:
    """Things that a program must not reach: a file, an open port, a socket with a path, this process."""
    named = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server, named:
        os.chmod(folder, 0o755)
        secret = os.path.join(folder, "secret")
        with open(secret, "w", encoding="ascii") as file:
            file.write(secrets.token_hex())
        os.chmod(secret, 0o644)
        path = os.path.join(folder, "socket")
        named.bind(path)
        port, memory = server.getsockname()[1], 2 * _LIMITS.memory_bytes
        yield {"secret": secret, "port": port, "socket": path, "parent": os.getpid(), "memory_bytes": memory}
