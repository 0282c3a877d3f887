"""Untrusted programs in the sandbox: they run, they are bounded, and nothing that they try scores or harms."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop.tasks.grading.grade import GradeMode
from strop.tasks.sandbox.cases import Case, Cases
from strop.tasks.sandbox.client import Jail, Run, RunEnd, SandboxError
from strop.tasks.sandbox.limits import SandboxLevel, SandboxLimits
from strop.tasks.sandbox.self_check import check_level, strongest_level
from strop.tasks.sandbox.verdict import failure_of, run_cases

LIMITS = SandboxLimits(
    wall_seconds=20, cpu_seconds=1, memory_bytes=2**28, output_bytes=2**20, scratch_bytes=2**22, num_threads=16
)
LEVELS = [level for level in (SandboxLevel.NAMESPACES, SandboxLevel.LANDLOCK) if check_level(level).problem is None]


@pytest.fixture(scope="module", params=LEVELS)
def jail(request: pytest.FixtureRequest) -> Iterator[Jail]:
    with Jail(request.param, LIMITS) as jail:
        yield jail


def test_this_machine_has_a_sandbox_or_says_why_not() -> None:
    assert LEVELS, [check_level(level) for level in SandboxLevel]
    assert strongest_level() is LEVELS[0]


def test_the_check_of_a_level_notices_escapes() -> None:
    problem = check_level(SandboxLevel.NONE).problem or ""
    for escape in (
        "read a file of the machine", "connect to a port", "start a process", "run another program",
        "truncate a file", "empty a file of the machine by opening", "send to a socket", "can name a receiver",
        "(F_SETOWN)", "(F_SETOWN_EX)", "(F_SETSIG)", "(FIOSETOWN)", "(SIOCSPGRP)",
    ):  # fmt: skip
        assert escape in problem


def test_a_program_reads_its_input_and_prints(jail: Jail) -> None:
    run = jail.run("a, b = map(int, input().split())\nprint(a + b)", stdin="3 4\n")
    assert (run.end, run.stdout) == (RunEnd.RETURNED, "7\n")


def test_a_function_or_a_method_is_called(jail: Jail) -> None:
    plain = jail.run("def f(a, b):\n    print('noise')\n    return [a, (b,)]", fn_name="f", arguments=[1, {"x": 2}])
    assert (plain.end, json.loads(plain.result)) == (RunEnd.RETURNED, [1, [{"x": 2}]])
    method = jail.run("class Solution:\n    def f(self, a):\n        return -a", fn_name="f", arguments=[5])
    assert method.result == "-5"
    assert jail.run("f = 1", fn_name="g").end is RunEnd.NO_FUNCTION
    assert jail.run("def f(): return {1, 2}", fn_name="f").end is RunEnd.NOT_JSON


def test_installed_packages_can_be_imported(jail: Jail) -> None:
    with Jail(strongest_level(), SandboxLimits(wall_seconds=30, cpu_seconds=30)) as roomy:
        assert roomy.run("import numpy\nprint(numpy.arange(4).sum())").stdout == "6\n"


def test_arrays_and_numbers_of_numpy_can_be_returned() -> None:
    program = "import numpy\ndef f(): return [numpy.arange(3), numpy.int64(7), numpy.float32(0.5), numpy.bool_(True)]"
    with Jail(strongest_level(), SandboxLimits(wall_seconds=30, cpu_seconds=30)) as roomy:
        assert json.loads(roomy.run(program, fn_name="f").result) == [[0, 1, 2], 7, 0.5, True]


ENDINGS = {
    "exit": "print(1)\nexit()\nprint(2)",
    "quit": "print(1)\nquit(0)\nprint(2)",
    "an exit handler": "import atexit\natexit.register(print, 1)",
    "the first standard output": "import io, sys\nsys.__stdout__.write('1\\n')\nsys.stdout = io.StringIO()",
    "a closed output": "import sys\nprint(1)\nsys.stdout.close()",
    "no output": "import sys\nprint(1)\nsys.stdout = None",
    "its own file": "print(len(__file__) // len(__file__))",
    "a pair of connected sockets": ("import socket\na, b = socket.socketpair()\na.close()\nprint(len(b.recv(1)) + 1)"),
    "an event loop": "import asyncio\nasync def main(): print(1)\nasyncio.run(main())",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_ends_as_in_any_python(jail: Jail, name: str) -> None:
    run = jail.run(ENDINGS[name])
    assert (run.end, run.stdout) == (RunEnd.RETURNED, "1\n"), run.detail


@pytest.mark.skipif(SandboxLevel.NAMESPACES not in LEVELS, reason="no namespaces here")
def test_threads_are_waited_for() -> None:
    program = (
        "import threading, time\ndef main():\n    time.sleep(0.2)\n    print(1)\nthreading.Thread(target=main).start()"
    )
    pool = "from concurrent.futures import ThreadPoolExecutor as Pool\nPool(2).submit(print, 1)"
    with Jail(SandboxLevel.NAMESPACES, LIMITS) as jail:
        assert [jail.run(source).stdout for source in (program, pool)] == ["1\n", "1\n"]


def test_a_called_function_finds_the_usual_names_but_not_itself(jail: Jail) -> None:
    program = (
        "class Solution:\n"
        "    @cache\n"
        "    def f(self, n: int) -> List[int]:\n"
        "        counts: Dict[int, int] = Counter(deque([n, n]))\n"
        "        return [pow(n, 2, 3), bisect.bisect([1, 2], n), math.gcd(n, 4), inf > n, *counts.values()]"
    )
    run = jail.run(program, fn_name="f", arguments=[2])
    assert (run.end, run.result) == (RunEnd.RETURNED, "[1, 2, 2, true, 2]"), run.detail
    assert jail.run("x = 1", fn_name="gcd", arguments=[4, 6]).end is RunEnd.NO_FUNCTION
    assert jail.run("print(gcd(4, 6))").end is RunEnd.FAILED


def test_what_a_program_leaves_behind_is_not_there_for_the_next_run_of_its_modules(jail: Jail) -> None:
    jail.run("import builtins, json\nbuiltins.print = None\njson.loads = None\nseen = 1")
    run = jail.run("import json\nprint(json.loads('1'), 'seen' in globals())")
    assert run.stdout == "1 False\n"


@pytest.mark.parametrize(
    ("program", "end"),
    [
        ("raise ValueError('told')", "ValueError: told"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print(", "SyntaxError"),
        ("import ctypes; ctypes.string_at(0)", "by signal 11"),
        ("import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()", ""),
        ("import os; os.abort()", "by signal 6"),
        ("import sys; sys.stdout = 3", "AttributeError"),
        ("import sys; sys.exit(96)", "exit code 96"),
        ("import os; os._exit(96)", "exit code 96"),
        (
            "import os\nfor n in range(3, 256):\n    try: os.write(n, b'x')\n    except OSError: pass\nos._exit(96)",
            "96",
        ),
    ],
)
def test_a_program_that_fails_is_told(jail: Jail, program: str, end: str) -> None:
    run = jail.run(program)
    assert run.end in (RunEnd.FAILED, RunEnd.KILLED)
    assert end in run.detail


def test_what_a_program_left_running_is_gone_before_the_next_run() -> None:
    with Jail(strongest_level(), LIMITS) as jail:
        jail.run("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()", wall_seconds=0.3)
        start = time.monotonic()
        assert jail.run("print(1)").stdout == "1\n"
        assert time.monotonic() - start < 5


BOUNDED = {
    "spinning": ("while True: pass", RunEnd.KILLED),
    "sleeping": ("import time; time.sleep(1000)", RunEnd.OUT_OF_TIME),
    "ignoring signals": (
        "import signal\n"
        "for number in range(1, 65):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: pass",
        RunEnd.KILLED,
    ),
    "blocking signals": (
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(1000)",
        RunEnd.OUT_OF_TIME,
    ),
    "infinite output": ("while True: print('x' * 10_000)", RunEnd.FAILED),
    "infinite errors": ("import sys\nwhile True: sys.stderr.write('x' * 10_000)", RunEnd.FAILED),
    "huge memory": ("x = bytearray(2**40)", RunEnd.FAILED),
    "growing memory": ("x = []\nwhile True: x.append(bytearray(2**20))", RunEnd.FAILED),
    "a fork bomb": ("import os\nwhile True: os.fork()", RunEnd.FAILED),
    "a thread bomb": (
        "import threading, time\nthreading.stack_size(32768)\n"
        "while True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        RunEnd.FAILED,
    ),
    "a program bomb": ("import subprocess\nwhile True: subprocess.Popen(['/bin/sh', '-c', '$0 & $0'])", RunEnd.FAILED),
    "open files": ("files = []\nwhile True: files.append(open('/dev/null'))", RunEnd.FAILED),
    "a catastrophic pattern": ("import re; re.fullmatch('(a+)+b', 'a' * 60)", RunEnd.KILLED),
    "a full scratch folder": (
        "import itertools\nfor n in itertools.count(): open(f'/tmp/{n}', 'wb').write(bytes(2**16))",
        RunEnd.FAILED,
    ),
    "many empty files": ("import itertools\nfor n in itertools.count(): open(f'/tmp/{n}', 'w').close()", RunEnd.FAILED),
    "one huge file": ("open('/tmp/huge', 'wb').truncate(2**40)", RunEnd.FAILED),
    "memory in files": ("import os\nos.memfd_create('x')", RunEnd.FAILED),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_program_without_bounds_is_bounded(jail: Jail, name: str) -> None:
    program, end = BOUNDED[name]
    start = time.monotonic()
    run = jail.run(program, wall_seconds=1.0 if end is RunEnd.OUT_OF_TIME else 20.0)
    assert time.monotonic() - start < 20
    assert run.end is end, run
    assert len(run.stdout) <= LIMITS.output_bytes
    assert jail.run("print(1)").stdout == "1\n"


SECRET = "d41e8b7a"
"""The expected output, which the programs below try to find."""
SPIES = {
    "the parent's command line": "import os\nprint(open(f'/proc/{os.getppid()}/cmdline').read())",
    "all command lines": "import glob\nfor p in glob.glob('/proc/*/cmdline'): print(open(p, errors='replace').read())",
    "the parent's environment": "import os\nprint(open(f'/proc/{os.getppid()}/environ').read())",
    "its own environment": "import os\nprint(dict(os.environ))",
    "the parent's memory": "import os\nprint(open(f'/proc/{os.getppid()}/mem', 'rb').read(1))",
    "inherited descriptors": (
        "import os\n"
        "for number in range(256):\n"
        "    if number == 1: continue\n"
        "    try: os.lseek(number, 0, 0)\n"
        "    except OSError: pass\n"
        "    try: print(os.read(number, 10**6))\n"
        "    except OSError: pass"
    ),
    "files of the machine": (
        "import os\n"
        "for root, _, names in os.walk('/'):\n"
        "    for name in names:\n"
        "        if name.startswith('strop-gold'): print(open(os.path.join(root, name)).read())"
    ),
    "objects of the interpreter": (
        "import gc\nfor thing in gc.get_objects():\n    if isinstance(thing, (dict, list, tuple, str)): print(thing)"
    ),
    "frames below it": "import sys\nframe = sys._getframe()\nwhile frame: print(frame.f_locals); frame = frame.f_back",
    "debugging": "import ctypes, os\nprint(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))",
}


@pytest.mark.parametrize("name", SPIES)
def test_the_expected_output_is_not_to_be_found(
    jail: Jail, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROP_GOLD", SECRET)
    (tmp_path / "strop-gold").write_text(SECRET)
    case = Case(stdin="nothing", expected=SECRET)
    run = jail.run(SPIES[name], stdin=case.stdin)
    assert SECRET not in run.stdout + run.detail
    assert failure_of(run, case, None, GradeMode.LENIENT) is not None


FORGED = {
    "leaving early": "import os; os._exit(0)",
    "leaving early as expected": "import sys; sys.exit(0)",
    "an end by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "a value equal to all": (
        "class Any:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\ndef f(a): return Any()"
    ),
    "a list equal to all": "class Any(list):\n    def __eq__(self, other): return True\ndef f(a): return Any([0])",
    "a number equal to all": "class Any(int):\n    def __eq__(self, other): return True\ndef f(a): return Any(0)",
    "a changed comparison": (
        "import builtins, operator, json\noperator.eq = lambda a, b: True\nbuiltins.all = lambda a: True\n"
        "json.loads = lambda text: {'end': 'returned'}\ndef f(a): return 0"
    ),
    "a printed verdict": (
        "print('{\"exit\": 0, \"result\": \"[9, 9]\", \"passed\": true}')\nprint('PASSED', 'OK', 'all tests pass')\n"
        "def f(a): return 0"
    ),
    "a result written by hand": "import os\nos.write(3, b'\"all\"')\nos._exit(0)",
    "two results": "import os\nos.write(3, b'[9, 9]')\ndef f(a): return 0",
    "frames for the grader": (
        'import os, struct\ntext = b\'{"exit": 0, "stdout": "", "result": "[9, 9]"}\'\n'
        "for number in range(3, 256):\n"
        "    try: os.write(number, struct.pack('!Q', len(text)) + text)\n"
        "    except OSError: pass\n"
        "def f(a): return 0"
    ),
    "not a number": "def f(a): return float('nan')",
    "an endless value": "x = []\nx.append(x)\ndef f(a): return x",
    "a deep value": "x = []\nfor _ in range(900): x = [x]\ndef f(a): return x",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_result_does_not_score(jail: Jail, name: str) -> None:
    for case in (Case(arguments=(2,), expected=[9, 9]), Case(arguments=(3,), expected=[9, 10])):
        run = jail.run(FORGED[name], fn_name="f", arguments=case.arguments)
        assert failure_of(run, case, "f", GradeMode.LENIENT) is not None
    for case in (Case(stdin="2", expected="99"), Case(stdin="3", expected="910")):
        run = jail.run(FORGED[name], stdin=case.stdin)
        assert failure_of(run, case, None, GradeMode.LENIENT) is not None


def test_signals_do_not_reach_the_grader(jail: Jail) -> None:
    # SIGCONT is asked for the same permission as SIGKILL, and does no harm to this machine where it were given
    program = (
        "import os, signal\n"
        "for target in (os.getppid(), 1, 0, -1, -os.getpgrp(), os.getpid() - 1, os.getpid() - 2, {grader}, -{group}):\n"
        "    try: os.kill(target, signal.SIGCONT)\n"
        "    except (PermissionError, ProcessLookupError): pass\n"
        "    else: print('sent', target)\n"
        "print('alive')"
    )
    reached = threading.Event()
    before = signal.signal(signal.SIGCONT, lambda *_: reached.set())
    try:
        run = jail.run(program.format(grader=os.getpid(), group=os.getpgrp()))
    finally:
        signal.signal(signal.SIGCONT, before)
    assert run.stdout == "alive\n"
    assert not reached.is_set()


def test_the_kernel_sends_no_signals_in_its_name(jail: Jail) -> None:
    program = (
        "import fcntl, os, socket, struct\n"
        "me, pipe, pair = os.getpid(), os.pipe()[0], socket.socketpair()[0]\n"
        "owner = struct.pack('2i', 1, me)\n"
        "deeds = [lambda: fcntl.fcntl(pipe, 8, me), lambda: fcntl.fcntl(pipe, 15, owner)]\n"
        "deeds += [lambda: fcntl.fcntl(pipe, 10, 9)]\n"
        "deeds += [lambda: fcntl.ioctl(pair, 0x8901, owner), lambda: fcntl.ioctl(pair, 0x8902, owner)]\n"
        "for number, deed in enumerate(deeds):\n"
        "    try: deed()\n"
        "    except PermissionError: print('refused', number)\n"
        "fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_NONBLOCK)"
    )
    run = jail.run(program)
    assert (run.end, run.stdout.count("refused")) == (RunEnd.RETURNED, 5), run


def test_the_network_is_out_of_reach(jail: Jail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        run: Run = jail.run(
            f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2).send(b'x')"
        )
        assert run.end is RunEnd.FAILED
        with pytest.raises(TimeoutError):
            server.accept()
    assert jail.run("import socket; socket.socket(socket.AF_UNIX)").end is RunEnd.FAILED
    assert jail.run("import socket; socket.socketpair(type=socket.SOCK_DGRAM)").end is RunEnd.FAILED
    assert jail.run("import socket; socket.socketpair()[0].send(b'x')").end is RunEnd.FAILED
    assert jail.run("import urllib.request; urllib.request.urlopen('http://localhost')").end is RunEnd.FAILED


def test_nothing_outside_of_the_scratch_folder_is_changed(jail: Jail, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    file = tmp_path / "file"
    file.write_text("kept")
    file.chmod(0o666)
    before = file.stat()
    program = (
        "import os, sys\n"
        f"file = {str(file)!r}\n"
        "places = [file + '.new', '/x', '/usr/x', os.__file__ + '.new', '/dev/x', '/etc/x', sys.path[-1] + '/x']\n"
        "deeds = [lambda place=place: open(place, 'w') for place in places + [file]]\n"
        "deeds += [lambda place=place: os.mkdir(place) for place in places]\n"
        "deeds += [lambda place=place: os.symlink('/', place) for place in places]\n"
        "deeds += [lambda: os.remove(file), lambda: os.rename(file, file + '.new')]\n"
        "deeds += [lambda: os.link(file, file + '.link')]\n"
        "deeds += [lambda: os.chmod(file, 0o644), lambda: os.chown(file, 1, 1), lambda: os.utime(file, (0, 0))]\n"
        "deeds += [lambda: os.open(file, os.O_RDONLY | os.O_TRUNC)]\n"
        "deeds += [lambda: os.truncate(file, 0), lambda: os.setxattr(file, 'user.x', b'x')]\n"
        "deeds += [lambda: open('/proc/self/comm', 'w'), lambda: open('/dev/shm/x', 'w')]\n"
        "for number, deed in enumerate(deeds):\n"
        "    try: deed()\n"
        "    except OSError: pass\n"
        "    else: print('done', number)"
    )
    run = jail.run(program)
    assert (run.end, run.stdout) == (RunEnd.RETURNED, "")
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "kept"
    assert (file.stat().st_mode, file.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.skipif(SandboxLevel.NAMESPACES not in LEVELS, reason="no namespaces here")
def test_a_scratch_folder_is_there_and_goes_with_the_jail() -> None:
    with Jail(SandboxLevel.NAMESPACES, LIMITS) as jail:
        assert jail.run("open('x', 'w').write('y')\nprint(open('/tmp/x').read())").stdout == "y\n"
    with Jail(SandboxLevel.NAMESPACES, LIMITS) as jail:
        assert jail.run("import os; print(os.listdir('/tmp'))").stdout == "[]\n"


@pytest.mark.skipif(SandboxLevel.NAMESPACES not in LEVELS, reason="no namespaces here")
def test_threads_with_large_stacks_work_for_deep_recursion() -> None:
    program = (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**26)\n"
        "def depth(n): return 0 if n == 0 else 1 + depth(n - 1)\n"
        "thread = threading.Thread(target=lambda: print(depth(20_000)))\nthread.start()\nthread.join()"
    )
    with Jail(SandboxLevel.NAMESPACES, LIMITS) as jail:
        assert jail.run(program).stdout == "20000\n"


def test_a_jail_ends_with_its_block_however_it_ends() -> None:
    pids = []

    def interrupted() -> None:
        with Jail(strongest_level(), LIMITS) as jail:
            pids.append(jail.pid)
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_ends_with_its_jail(level: SandboxLevel) -> None:
    jail = Jail(level, LIMITS)
    program = "import ctypes, time\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\ntime.sleep(1000)"
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(SandboxError):
            jail.run(program)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 10
    while not (inside := descendants(jail.pid)) or (level is SandboxLevel.NAMESPACES and len(inside) < 2):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(jail.pid, signal.SIGKILL)
    thread.join(10)
    assert ended.is_set()
    while any(Path(f"/proc/{pid}").exists() for pid in inside):
        assert time.monotonic() < deadline + 10
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [other for child in children for other in descendants(child)]


def test_time_runs_out_for_all_tests_together() -> None:
    cases = Cases(None, tuple(Case(stdin=str(n), expected=str(n)) for n in range(100)))
    start = time.monotonic()
    result = run_cases(
        "import time; time.sleep(0.2); print(input())", cases, GradeMode.STRICT,
        level=strongest_level(), limits=LIMITS, total_seconds=1.0, run_all=True,
    )  # fmt: skip
    assert time.monotonic() - start < 5
    assert 0 < result.num_passed < 100
    assert result.num_tests == 100
    assert "time" in (result.first_failure or "")
