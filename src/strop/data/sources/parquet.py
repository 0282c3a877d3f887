"""Parquet: one file, or every `*.parquet` file below a folder in the order of their names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.data.errors import DataError, require_package
from strop.data.rows import BadRow, PlacedRow

_ROWS_AT_ONCE = 1024


def read_parquet(path: Path) -> Iterator[PlacedRow | BadRow]:
    """Yields the rows of the file or folder in order, reading no more than is asked for.

    Rows count from 1. A row whose text is not UTF-8 is a bad row. Raises DataError where nothing is there, where a
    file is not Parquet, and where there are no rows; ModuleNotFoundError, naming the extra, without pyarrow.
    """
    require_package("pyarrow", "parquet", "a Parquet source")
    num_rows = 0
    for file in _parquet_files(path):
        for row in _read_file(file):
            num_rows += 1
            yield row
    if num_rows == 0:
        raise DataError(f"data at {path} must hold rows, got an empty Parquet table")


def _parquet_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(path.rglob("*.parquet"))
    if not files:
        found = "a folder without any" if path.is_dir() else "no such file or folder"
        raise DataError(
            f"data path {path.absolute()} must be a Parquet file or a folder of *.parquet files, got {found}"
        )
    return files


def _read_file(file: Path) -> Iterator[PlacedRow | BadRow]:
    import pyarrow
    import pyarrow.parquet

    row_number = 0
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
                for row in _rows(batch):
                    row_number += 1
                    place = f"{file}, row {row_number}"
                    yield BadRow(place, row) if isinstance(row, str) else PlacedRow(place, row)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"data file {file} must be a Parquet file, got one that cannot be read: {error}") from error


def _rows(batch: Any) -> Iterator[dict[str, Any] | str]:
    """The rows of a batch; the reason, where one cannot be decoded."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for index in range(batch.num_rows):
            yield _row(batch, index)


def _row(batch: Any, index: int) -> dict[str, Any] | str:
    row: dict[str, Any] = {}
    for name in batch.schema.names:
        try:
            row[name] = batch.column(name)[index].as_py()
        except UnicodeDecodeError as error:
            return f"column {name!r} must be UTF-8, got byte 0x{error.object[error.start]:02x} at {error.start}"
    return row
