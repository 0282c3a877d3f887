"""JSONL: one JSON object a line, in UTF-8. Every fault is reported with its file and line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.data.errors import DataError


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of the file in order; blank lines are no rows.

    Raises DataError with file and line where a line is not UTF-8, not JSON or not an object, and where the
    file is missing, cannot be read or holds no rows.
    """
    if not path.is_file():
        raise DataError(f"data file {path} must be a JSONL file, got {'a folder' if path.is_dir() else 'no such file'}")
    num_rows = 0
    try:
        with path.open("rb") as file:
            for line_number, line in enumerate(file, start=1):
                if line.strip():
                    num_rows += 1
                    yield _parse_line(line, f"{path}, line {line_number}")
    except OSError as error:
        raise DataError(f"data file {path} cannot be read: {error}") from error
    if num_rows == 0:
        raise DataError(f"data file {path} must hold one JSON object a line, got an empty file")


def _parse_line(line: bytes, place: str) -> dict[str, Any]:
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: must be UTF-8, got byte 0x{line[error.start]:02x} at {error.start}") from error
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{place}: must be one JSON object, got {_shortened(text)}: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{place}: must be a JSON object with columns, got {type(value).__name__} {_shortened(text)}")
    return value


def _shortened(text: str, num_characters: int = 60) -> str:
    text = text.strip()
    return repr(text if len(text) <= num_characters else text[:num_characters] + "…")
