"""Facts about the machine and the software of a run, for its run folder. Nothing here imports torch."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = (
    "strop",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "safetensors",
    "pydantic",
    "accelerate",
    "peft",
    "datasets",
    "reasoning-gym",
)
VARIABLE_PREFIXES = ("OMP_", "GOMP_", "MKL_", "CUDA_VISIBLE", "ASCEND_RT_VISIBLE", "HIP_VISIBLE", "PYTORCH_", "TORCH_")
GIT_TIMEOUT_SECONDS = 5.0


def collect_facts() -> dict[str, Any]:
    """Returns JSON-able facts: command line, versions, commit, processor, memory, thread settings."""
    return {
        "command": [sys.executable, *sys.argv],
        "working_folder": str(Path.cwd()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": package_versions(),
        "git": git_state(Path(__file__)),
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "variables": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(VARIABLE_PREFIXES)},
    }


def write_facts(path: Path) -> None:
    """Writes the facts as indented JSON."""
    path.write_text(json.dumps(collect_facts(), indent=2) + "\n")


def package_versions() -> dict[str, str | None]:
    """Returns the installed versions of what a run depends on; None where a package is not installed."""
    return {name: _version(name) for name in PACKAGES}


def git_state(file: Path) -> dict[str, Any] | None:
    """Returns commit and changed files of the checkout that tracks `file`; None where none does."""
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _git(file.parent, "rev-parse", "HEAD"),
        "changed_files": None if changed is None else [line[3:] for line in changed.splitlines()],
    }


def cpu_model() -> str:
    """Returns the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_SECONDS, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return result.stdout.rstrip("\n") if result.returncode == 0 else None
