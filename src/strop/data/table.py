"""The prompt table: the rendered rows of the data, what the prompt stream serves."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.data.rows import DataRow
from strop.records import Message, Prompt


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """A data row with its prompt, ready to be served."""

    row: DataRow
    messages: tuple[Message, ...]
    token_ids: NDArray[np.int64]
    """[P]"""
    task: str
    gold: str | None = None
    """A response that must score 1; None where the row has none."""
    special: str | None = None
    """A special token that the messages hold as text; None where they hold none."""

    def prompt(self, visit: int) -> Prompt:
        """The prompt of this row, served for the `visit`-th time."""
        return Prompt(
            prompt_id=self.row.row_id,
            visit=visit,
            token_ids=self.token_ids,
            messages=self.messages,
            task=self.task,
            columns=self.row.columns,
            source=self.row.source,
        )


@dataclass(frozen=True)
class PromptTable:
    """The rendered rows of the data, in their order, without those that were left out."""

    rows: tuple[RenderedRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def prompt(self, index: int, visit: int = 0) -> Prompt:
        """The prompt of row `index`, served for the `visit`-th time."""
        return self.rows[index].prompt(visit)

    def prompts(self) -> list[Prompt]:
        """Every prompt once, in the order of the data: what evaluation asks."""
        return [self.prompt(index) for index in range(len(self))]

    def by_source(self) -> Mapping[str, "PromptTable"]:
        """A table for each source, in the order of the data."""
        return _grouped((rendered.row.source, rendered) for rendered in self.rows)

    def by_task(self) -> Mapping[str, "PromptTable"]:
        """A table for each task, in the order of the data."""
        return _grouped((rendered.task, rendered) for rendered in self.rows)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that every row has: the names that a reward function may ask for."""
        return frozenset.intersection(*(frozenset(rendered.row.columns) for rendered in self.rows))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of row ids and token ids: it changes when data, task, template or tokenizer do."""
        digest = hashlib.sha256()
        for rendered in self.rows:
            digest.update(rendered.row.row_id.encode("utf-8"))
            digest.update(b"\0")
            digest.update(rendered.token_ids.astype("<i8").tobytes())
            digest.update(b"\0")
        return digest.hexdigest()

    @cached_property
    def columns_fingerprint(self) -> str:
        """A digest of all columns of all rows, which rewards read; of values that are no plain data, of their type."""
        digest = hashlib.sha256()
        for rendered in self.rows:
            text = json.dumps(dict(rendered.row.columns), sort_keys=True, default=_plain)
            digest.update(text.encode("ascii"))
            digest.update(b"\0")
        return digest.hexdigest()


def _plain(value: Any) -> Any:
    match value:
        case np.ndarray() | np.generic():
            return value.tolist()
        case bytes():
            return value.hex()
        case Decimal() | date() | time() | timedelta():
            return str(value)
        case Mapping():
            return dict(value)
    return type(value).__name__


def _grouped(pairs: Iterable[tuple[str, RenderedRow]]) -> dict[str, PromptTable]:
    groups: dict[str, list[RenderedRow]] = {}
    for name, rendered in pairs:
        groups.setdefault(name, []).append(rendered)
    return {name: PromptTable(tuple(rows)) for name, rows in groups.items()}
