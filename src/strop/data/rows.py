"""A data row: what a source read, under an id that stays the same from run to run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any


@dataclass(frozen=True, slots=True)
class DataRow:
    """One row of a data set as a plain dict of columns."""

    row_id: str
    """`source:index`, stable over runs; it names the random stream of the row's samples."""
    columns: Mapping[str, Any]
    source: str
    """Name of the source, for metrics by source."""


def number_rows(source: str, rows: Iterable[Mapping[str, Any]], limit: int | None) -> Iterator[DataRow]:
    """Yields the first `limit` rows under the ids `source:0`, `source:1`, ... and reads no further than that."""
    for index, columns in enumerate(islice(rows, limit)):
        yield DataRow(row_id=f"{source}:{index}", columns=columns, source=source)
