"""Sources read rows: `load_rows` chooses the reader by the kind of source and gives every row its id."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from strop.config.data import HubSource, JsonlSource, ParquetSource, ReasoningGymSource, Source
from strop.data.rows import DataRow, number_rows

__all__ = ["load_rows", "source_name"]


def load_rows(source: Source, limit: int | None = None) -> list[DataRow]:
    """Reads the rows of a source, the first `limit` of them where a limit is given.

    Raises DataError where the data is missing, malformed or empty (with file and line for JSONL), and
    ModuleNotFoundError, naming the extra to install, where an optional package is missing.
    """
    return list(number_rows(source_name(source), _read(source), limit))


def source_name(source: Source) -> str:
    """The name of a source in row ids and metrics: short, and the same wherever the data lies on disk."""
    match source:
        case JsonlSource() | ParquetSource():
            return source.path.name
        case HubSource():
            path = Path(source.path).resolve().name if Path(source.path).is_dir() else source.path
            return "/".join(part for part in (path, source.subset, source.split) if part)
        case ReasoningGymSource():
            return f"{source.name}-seed{source.seed}"


def _read(source: Source) -> Iterable[Mapping[str, Any]]:
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
