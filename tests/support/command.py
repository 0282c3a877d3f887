"""Runs the command line as a person does: in a process of its own."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import strop

HEAVY_MODULES = ("torch", "transformers", "datasets", "safetensors")


def source_environment(**variables: str) -> dict[str, str]:
    """The environment with this source tree on the path of a child's Python."""
    source = str(Path(next(iter(strop.__path__))).parent)
    path = os.pathsep.join(part for part in (source, os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "100", **variables}


def run_strop(
    *arguments: str,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_seconds: float = 120,
) -> "subprocess.CompletedProcess[str]":
    """Runs `strop ARGUMENTS...` in `folder` and returns its exit code and output."""
    return subprocess.run(
        [sys.executable, "-m", "strop", *arguments],
        cwd=folder,
        env=source_environment(**(variables or {})),
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


def processor_seconds(*arguments: str) -> float:
    """Processor time of `strop ARGUMENTS...`: how long it takes where nothing else runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_strop(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def heavy_imports(*arguments: str) -> list[str]:
    """The heavy modules that `strop ARGUMENTS...` has imported when it ends."""
    code = (
        "import atexit, sys, json\n"
        f"heavy = lambda: json.dumps([name for name in {HEAVY_MODULES!r} if name in sys.modules])\n"
        "atexit.register(lambda: print(heavy(), file=sys.stderr))\n"
        f"sys.argv = ['strop', *{list(arguments)!r}]\n"
        "from strop.cli.main import main\n"
        "main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=source_environment(), timeout=60, check=False
    )
    modules: list[str] = json.loads(result.stderr.strip().splitlines()[-1])
    return modules
