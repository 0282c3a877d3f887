"""JSONL: one JSON object a line, in UTF-8. Every fault is reported with its file and line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from strop.data.errors import DataError
from strop.data.rows import BadRow, PlacedRow

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is not read into memory: it is a bad row."""


def read_jsonl(path: Path, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[PlacedRow | BadRow]:
    """Yields the objects of the file in order; blank lines are no rows.

    A line that is not UTF-8, not JSON, not an object or far too long is a bad row. Raises DataError where the file is
    missing, cannot be read or holds no rows.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise DataError(f"data file {path.absolute()} must be a JSONL file, got {found}")
    num_rows = 0
    try:
        with path.open("rb") as file:
            for line_number, line in enumerate(_lines(file, max_line_bytes), start=1):
                if line.strip():
                    num_rows += 1
                    place = f"{path}, line {line_number}"
                    yield _too_long(place, max_line_bytes) if len(line) > max_line_bytes else _parse_line(line, place)
    except OSError as error:
        raise DataError(f"data file {path} cannot be read: {error}") from error
    if num_rows == 0:
        raise DataError(f"data file {path} must hold one JSON object a line, got an empty file")


def _lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes]:
    """The lines of a file; one that is too long comes cut, one byte over the limit."""
    while line := file.readline(max_bytes + 1):
        rest = line
        while len(rest) > max_bytes and not rest.endswith(b"\n"):
            rest = file.readline(max_bytes + 1)
        yield line


def _too_long(place: str, max_bytes: int) -> BadRow:
    return BadRow(place, f"must be a line of at most {max_bytes} bytes, got a longer one")


def _parse_line(line: bytes, place: str) -> PlacedRow | BadRow:
    try:
        text = line.rstrip(b"\r\n").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return BadRow(place, f"must be UTF-8, got byte 0x{line[error.start]:02x} at {error.start}")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:  # its own text counts lines anew, from the start of this one
        return BadRow(place, f"must be one JSON object, got {_shortened(text)}: {error.msg} at {error.pos}")
    except (ValueError, RecursionError) as error:
        return BadRow(place, f"must be one JSON object, got {_shortened(text)}: {error}")
    if not isinstance(value, dict):
        return BadRow(place, f"must be a JSON object with columns, got {type(value).__name__} {_shortened(text)}")
    return PlacedRow(place, value)


def _shortened(text: str, num_characters: int = 60) -> str:
    text = text[: 2 * num_characters].strip()
    return repr(text if len(text) <= num_characters else text[:num_characters] + "…")
