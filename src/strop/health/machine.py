"""Cores, threads, memory and disk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from strop.health.finding import Finding, Health

_GIB = 2**30
_SCARCE_MEMORY_BYTES = 2 * _GIB
_SCARCE_DISK_BYTES = 10 * _GIB
_TOO_LITTLE_DISK_BYTES = _GIB // 2


def check_machine(run_folders: Path) -> Iterator[Finding]:
    """Yields findings about threads, memory, and the disk that run folders will be written to."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("cores", Health.OK, f"{cores} usable by this process")
    yield judge_quota(cores, _cpu_quota(Path("/sys/fs/cgroup/cpu.max")))
    yield judge_threads(cores, os.environ.get("OMP_NUM_THREADS"))
    yield judge_memory(_available_memory(Path("/proc/meminfo")))
    yield judge_folder(run_folders)


def _cpu_quota(cpu_max: Path) -> float | None:
    """The cores' worth of time that the control group grants; None where it sets no limit."""
    if not cpu_max.is_file():
        return None
    quota, period = cpu_max.read_text().split()
    return None if quota == "max" else int(quota) / int(period)


def judge_quota(cores: int, quota: float | None) -> Finding:
    """Threads beyond a container's share of time are stopped in the middle of an operation."""
    if quota is None or quota >= cores:
        return Finding("cpu quota", Health.OK, "every core may be used in full")
    remedy = f"Set run.threads={max(1, int(quota))}: more threads would wait for each other."
    return Finding("cpu quota", Health.WARN, f"{quota:g} cores' worth of time on {cores} cores", remedy)


def judge_threads(cores: int, setting: str | None) -> Finding:
    """More OpenMP threads than cores wait for each other at every operation."""
    if setting is None:
        return Finding("OMP_NUM_THREADS", Health.OK, "not set: run.threads decides")
    if not setting.isdigit() or int(setting) < 1:
        return Finding("OMP_NUM_THREADS", Health.WARN, f"must be a number of at least 1, got {setting!r}", "Unset it.")
    if int(setting) > cores:
        remedy = f"Set it to {cores} or less, or unset it: threads without a core stall the others."
        return Finding("OMP_NUM_THREADS", Health.WARN, f"{setting}, on {cores} cores", remedy)
    return Finding("OMP_NUM_THREADS", Health.OK, setting)


def _available_memory(meminfo: Path) -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    if not meminfo.is_file():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024


def judge_memory(available_bytes: int | None) -> Finding:
    """A 135M-parameter model trained in float32 takes about 3 GiB."""
    if available_bytes is None:
        return Finding("memory", Health.OK, "this system does not say how much is free")
    detail = f"{available_bytes / _GIB:.1f} GiB available"
    if available_bytes < _SCARCE_MEMORY_BYTES:
        return Finding("memory", Health.WARN, detail, "Close other programs, or expect small models only.")
    return Finding("memory", Health.OK, detail)


def judge_folder(folder: Path) -> Finding:
    """Writes, flushes and renames a file where run folders go, as a checkpoint does, and looks at the free space."""
    name = f"run folders in {folder}"
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        return Finding(name, Health.FAIL, f"{existing} is a file", "Choose another run.output_dir.")
    try:
        _write_and_rename(existing)
    except OSError as error:
        return Finding(name, Health.FAIL, f"cannot be written: {error}", "Choose another run.output_dir.")
    return _judge_space(name, shutil.disk_usage(existing).free)


def _write_and_rename(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".strop-doctor-") as scratch:
        first = Path(scratch) / "first"
        with first.open("wb") as file:
            file.write(b"whole")
            file.flush()
            os.fsync(file.fileno())
        first.rename(Path(scratch) / "second")


def _judge_space(name: str, free_bytes: int) -> Finding:
    detail = f"writable, {free_bytes / _GIB:.1f} GiB free"
    if free_bytes < _TOO_LITTLE_DISK_BYTES:
        return Finding(name, Health.FAIL, detail, "Free space: a checkpoint would not fit.")
    if free_bytes < _SCARCE_DISK_BYTES:
        remedy = "A checkpoint takes about 12 bytes a parameter; lower checkpoint.keep if need be."
        return Finding(name, Health.WARN, detail, remedy)
    return Finding(name, Health.OK, detail)
