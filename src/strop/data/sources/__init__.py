"""Sources read rows: `read_source` chooses the reader by the kind of source and gives every row its id."""

from collections.abc import Iterable

from strop.config.data import HubSource, JsonlSource, ParquetSource, ReasoningGymSource, SingleSource
from strop.config.source_names import source_name
from strop.data.rows import BadRow, DataRow, PlacedRow, SourceRows, number_rows, refuse_bad_rows

__all__ = ["load_rows", "read_source", "source_name"]


def load_rows(source: SingleSource, limit: int | None = None) -> list[DataRow]:
    """Reads the rows of a source, the first `limit` of them where a limit is given.

    Raises DataError where the data is missing or empty, naming the place of each bad row (file and line for JSONL,
    file and row for Parquet), and ModuleNotFoundError, naming the extra to install, where a package is missing.
    """
    read = read_source(source, limit=limit)
    refuse_bad_rows(read.name, read.bad, read.num_read, "error")
    return list(read.rows)


def read_source(source: SingleSource, *, name: str | None = None, limit: int | None = None) -> SourceRows:
    """Reads the rows of a source and lists the bad ones; `name` replaces the source's own.

    Raises DataError where the data is missing or empty, and ModuleNotFoundError, naming the extra to install.
    """
    return number_rows(name or source_name(source), _read(source), limit)


def _read(source: SingleSource) -> Iterable[PlacedRow | BadRow]:
    match source:
        case JsonlSource():
            from strop.data.sources.jsonl import read_jsonl

            return read_jsonl(source.path)
        case ParquetSource():
            from strop.data.sources.parquet import read_parquet

            return read_parquet(source.path)
        case HubSource():
            from strop.data.sources.hub import read_hub

            return read_hub(source)
        case ReasoningGymSource():
            from strop.data.sources.reasoning_gym import read_reasoning_gym

            return read_reasoning_gym(source)
