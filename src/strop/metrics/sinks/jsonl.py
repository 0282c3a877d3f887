"""`metrics.jsonl`: one line a step, on disk before the next step begins.

A line is a flat JSON object: `step` first, then the metrics by name. What was not measured is left out; NaN and
infinities are written as `NaN`, `Infinity` and `-Infinity`, as Python's `json` reads and writes them.
"""

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from strop.errors import ConfigError, DataError
from strop.metrics.metric import Metrics, values

FILE_NAME = "metrics.jsonl"


class JsonlSink:
    """Appends a line a step. On resume it cuts what was written after the step it goes on from.

    Raises ConfigError where a new run would append to the metrics of an old one.
    """

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        if resume_step is None and path.exists() and path.stat().st_size:
            raise ConfigError(
                f"a new run must not write into {path}, which holds the metrics of another",
                "Resume that run, or choose another run.name.",
            )
        self._path = path
        self._last_step: int | None = None if resume_step is None else cut_after(path, resume_step)
        self._file: BinaryIO = path.open("ab")

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes the line of a step. Raises ValueError where the step is not later than the last one."""
        if self._last_step is not None and step <= self._last_step:
            raise ValueError(
                f"{self._path} must get each step once and in order, got step {step} after {self._last_step}: "
                "merge all metrics of a step before logging them"
            )
        measured = {name: value for name, value in values(metrics).items() if value is not None}
        line = json.dumps({"step": step, **measured}, separators=(", ", ": "))
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._last_step = step

    def close(self) -> None:
        """Closes the file; every line is on disk already."""
        self._file.close()


def cut_after(path: Path, step: int) -> int | None:
    """Cuts the lines after `step`, and a torn last line; returns the last step that stays."""
    if not path.exists():
        return None
    kept_bytes, last_step = 0, None
    with path.open("r+b") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            line_step = int(_parse(path, number, line)["step"])
            if line_step > step:
                break
            kept_bytes, last_step = kept_bytes + len(line), line_step
        file.truncate(kept_bytes)
        os.fsync(file.fileno())
    return last_step


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Reads the whole lines of a metrics file; a torn last line (the run was killed) is left out."""
    with path.open("rb") as file:
        return [_parse(path, number, line) for number, line in enumerate(file, start=1) if line.endswith(b"\n")]


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise DataError(
            f"{path}, line {number} must be a JSON object, got {line[:60]!r}", "Remove the line or the file."
        ) from error
    return parsed
