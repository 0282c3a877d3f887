"""Parquet: one file, or every `*.parquet` file below a folder in the order of their names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.data.errors import DataError, require_package

_ROWS_AT_ONCE = 1024


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of the file or folder in order, reading no more than is asked for.

    Raises DataError where nothing is there, where a file is not Parquet, and where there are no rows;
    ModuleNotFoundError, naming the extra, without pyarrow.
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
        raise DataError(f"data path {path} must be a Parquet file or a folder of *.parquet files, got {found}")
    return files


def _read_file(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"data file {file} must be a Parquet file, got one that cannot be read: {error}") from error
