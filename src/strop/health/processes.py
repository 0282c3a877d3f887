"""Two real processes talk over gloo, in bounded time.

    doctor --starts--> rank 0 ---\
           --starts--> rank 1 ---- a file as meeting place, one all-reduce, exit 0
           waits at most `timeout_seconds` for both, then kills what is left
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from strop.health.finding import Finding, Health

_NAME = "two processes over gloo"
_REMEDY = "Set GLOO_SOCKET_IFNAME to a network interface that reaches this machine, such as lo."


def check_processes(timeout_seconds: float = 60.0) -> Finding:
    """Runs an all-reduce between two new processes."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="strop-doctor-") as scratch:
        ranks = [_start_rank(rank, Path(scratch) / "store") for rank in range(2)]
        try:
            outputs = [rank.communicate(timeout=_left(start, timeout_seconds)) for rank in ranks]
        except subprocess.TimeoutExpired:
            return Finding(_NAME, Health.FAIL, f"not done after {timeout_seconds:.0f} s", _REMEDY)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    seconds = time.monotonic() - start
    if all(rank.returncode == 0 for rank in ranks):
        return Finding(_NAME, Health.OK, f"all-reduce right, {seconds:.1f} s with their start")
    last_lines = [stderr.strip().splitlines()[-1] for _, stderr in outputs if stderr.strip()]
    return Finding(_NAME, Health.FAIL, "; ".join(last_lines) or "a process died without a word", _REMEDY)


def _start_rank(rank: int, store: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "strop.health.gloo_rank", str(rank), str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _left(start: float, timeout_seconds: float) -> float:
    return max(0.0, start + timeout_seconds - time.monotonic())
