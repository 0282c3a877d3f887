"""Data rows: what a source read, under an id that stays the same from run to run; and rows that cannot be used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from strop.data.errors import DataError
from strop.data.faults import row_fault

NUM_SHOWN_BAD_ROWS = 5


@dataclass(frozen=True, slots=True)
class DataRow:
    """One row of a data set as a plain dict of columns."""

    row_id: str
    """`source:index`, stable over runs; it names the random stream of the row's samples."""
    columns: Mapping[str, Any]
    source: str
    """Name of the source, for metrics by source."""
    place: str = ""
    """Where a person finds the row, such as `train.jsonl, line 7`; empty where the id says it."""

    @property
    def where(self) -> str:
        """The place, or else the id."""
        return self.place or self.row_id


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A row as a reader finds it."""

    place: str
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Everything that was read from one source."""

    name: str
    rows: tuple[DataRow, ...]
    bad: tuple[BadRow, ...] = ()

    @property
    def num_read(self) -> int:
        """How many rows were read, bad ones too."""
        return len(self.rows) + len(self.bad)


def number_rows(source: str, found: Iterable[PlacedRow | BadRow], limit: int | None = None) -> SourceRows:
    """Takes the first `limit` rows and reads no further; the ids are `source:0`, `source:1`, ...

    A bad row has a number too, so that mending it moves no other row.
    """
    rows, bad = [], []
    for index, item in enumerate(islice(_checked(found), limit)):
        if isinstance(item, BadRow):
            bad.append(item)
        else:
            rows.append(DataRow(f"{source}:{index}", item.columns, source, item.place))
    return SourceRows(source, tuple(rows), tuple(bad))


def _checked(found: Iterable[PlacedRow | BadRow]) -> Iterator[PlacedRow | BadRow]:
    """The rows, those with text that nothing can be done with as bad ones."""
    for item in found:
        fault = None if isinstance(item, BadRow) else row_fault(item.columns)
        yield item if fault is None else BadRow(item.place, fault)


def refuse_bad_rows(
    source: str, bad: Sequence[BadRow], num_rows: int, on_bad_row: Literal["error", "skip"], key: str = "data"
) -> None:
    """Raises DataError naming the first bad rows where bad rows are errors, or where no other row is left.

    `key` is where the run file sets task and columns of these rows.
    """
    if not bad or (on_bad_row == "skip" and len(bad) < num_rows):
        return
    shown = "\n".join(f"  {row}" for row in bad[:NUM_SHOWN_BAD_ROWS])
    rest = f"\n  and {len(bad) - NUM_SHOWN_BAD_ROWS} more" if len(bad) > NUM_SHOWN_BAD_ROWS else ""
    remedy = 'Mend or remove them, or set data.on_bad_row = "skip" to leave them out.'
    if len(bad) == num_rows:
        remedy = f"Check {key}.task and the columns it reads{'' if key == 'data' else ', or those of data'}."
    raise DataError(f"{len(bad)} of {num_rows} rows of {source} cannot be used:\n{shown}{rest}", remedy)
