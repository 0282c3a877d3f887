"""Hugging Face data sets: a name on the hub, a folder that `datasets` can load, or one that it saved.

A folder written by `save_to_disk` is recognised by the files that `datasets` puts there; every other path is
handed to `load_dataset`, which takes hub names and local folders alike.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.config.data import HubSource
from strop.data.errors import DataError, require_package
from strop.data.rows import BadRow, PlacedRow
from strop.errors import nearest_hint

_ROWS_AT_ONCE = 1024


def read_hub(source: HubSource) -> Iterator[PlacedRow | BadRow]:
    """Yields the rows of the split in order; one whose text is not UTF-8 is a bad row. Rows count from 1.

    Raises DataError naming data set, subset and split where it cannot be loaded or has no rows;
    ModuleNotFoundError, naming the extra, without datasets.
    """
    require_package("datasets", "data", "a Hugging Face data set")
    if source.revision is not None and Path(source.path).is_dir():
        raise DataError(f"the local folder {source.path} has no revisions, got {source.revision!r}: leave it out")
    table = _load_saved(source) if _is_saved(source.path) else _load(source)
    if len(table) == 0:
        raise DataError(f"{_described(source)} must hold rows, got none")
    for start in range(0, len(table), _ROWS_AT_ONCE):
        yield from _rows(table, range(start, min(start + _ROWS_AT_ONCE, len(table))), _described(source))


def _rows(table: Any, indices: range, described: str) -> Iterator[PlacedRow | BadRow]:
    """Some rows, all at once where every one of them can be decoded."""
    try:
        columns = table[indices.start : indices.stop]
    except UnicodeDecodeError:
        yield from (_row(table, index, f"{described}, row {index + 1}") for index in indices)
        return
    for place, index in enumerate(indices):
        yield PlacedRow(f"{described}, row {index + 1}", {name: values[place] for name, values in columns.items()})


def _row(table: Any, index: int, place: str) -> PlacedRow | BadRow:
    try:
        return PlacedRow(place, table[index])
    except UnicodeDecodeError as error:
        return BadRow(place, f"must be UTF-8, got byte 0x{error.object[error.start]:02x} at {error.start} of a text")


def _is_saved(path: str) -> bool:
    folder = Path(path)
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _load(source: HubSource) -> Any:
    import datasets

    try:
        return datasets.load_dataset(source.path, name=source.subset, split=source.split, revision=source.revision)
    except (OSError, ValueError, datasets.exceptions.DatasetGenerationError) as error:
        cause = f"{error.__cause__}" if error.__cause__ else f"{error}"
        raise DataError(f"{_described(source)} cannot be loaded: {type(error).__name__}: {cause}") from error


def _load_saved(source: HubSource) -> Any:
    import datasets

    if source.subset is not None:
        raise DataError(f"{source.path}, written by save_to_disk, has no subsets, got {source.subset!r}: leave it out")
    loaded = datasets.load_from_disk(source.path)
    if not isinstance(loaded, datasets.DatasetDict):
        return loaded
    if source.split not in loaded:
        names = [str(name) for name in loaded]
        raise DataError(
            f"split must be one of {', '.join(names)} in {source.path}, got {source.split!r}"
            f"{nearest_hint(source.split, names)}"
        )
    return loaded[source.split]


def _described(source: HubSource) -> str:
    subset = f", subset {source.subset!r}" if source.subset else ""
    revision = f", revision {source.revision!r}" if source.revision else ""
    return f"data set {source.path!r}{subset}{revision}, split {source.split!r}"
