"""The rows of offline training, rendered, measured and counted before any model loads.

A row that cannot be used is a bad row; one longer than the model's maximum is overlong. Either is left out and told, or
an error, as the run file says; where none is left, it is always an error.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from strop.data.errors import DataError, MissingColumnError
from strop.data.offline.columns import ColumnReader
from strop.data.offline.render import ConversationRenderer, RowText, TokenRow
from strop.data.rows import NUM_SHOWN_BAD_ROWS, BadRow, DataRow, SourceRows, refuse_bad_rows
from strop.records import FinishState, Group, Prompt, Sample

_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Example:
    """One data row as it is trained on."""

    row_id: str
    where: str
    source: str
    answers: tuple[tuple[TokenRow, ...], ...]
    """The rows of its conversation; of a pair, those of the chosen one, then those of the rejected one."""
    label: bool | None = None

    @property
    def rows(self) -> list[TokenRow]:
        """The rows of all answers."""
        return [row for rows in self.answers for row in rows]

    @property
    def longest_tokens(self) -> int:
        """The length of its longest row."""
        return max(len(row.token_ids) for row in self.rows)

    @property
    def num_trained_tokens(self) -> int:
        """How many tokens of it bear loss."""
        return sum(int(row.loss_mask.sum()) for row in self.rows)

    def group(self, visit: int = 0) -> Group:
        """The record that is packed: a sample an answer; its reward is the label, where there is one."""
        first = self.rows[0]
        prompt_ids = first.token_ids[: int(first.loss_mask.argmax())].astype("int64")
        reward = None if self.label is None else float(self.label)
        samples = tuple(
            Sample(index, tuple(row.row() for row in rows), FinishState.STOPPED, reward)
            for index, rows in enumerate(self.answers)
        )
        return Group(Prompt(self.row_id, visit, prompt_ids, (), "", source=self.source), samples)


@dataclass(frozen=True)
class ExampleTable:
    """All examples, in the order of the data."""

    examples: tuple[Example, ...]

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of ids, tokens, masks and labels: it changes when data, template or tokenizer do."""
        digest = hashlib.sha256()
        for example in self.examples:
            digest.update(f"{example.row_id}\0{example.label}\0".encode())
            for rows in example.answers:
                digest.update(len(rows).to_bytes(4, "little"))
                for row in rows:
                    digest.update(len(row.token_ids).to_bytes(4, "little"))
                    digest.update(row.token_ids.astype("<i4").tobytes())
                    digest.update(row.loss_mask.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ExampleReport:
    """What was found, for a person to read before a run starts."""

    source: str
    table: ExampleTable
    num_read: int
    bad: tuple[BadRow, ...]
    num_overlong: int
    longest_overlong_tokens: int
    max_tokens: int

    def lines(self) -> list[str]:
        """The report as plain lines of text."""
        examples = self.table.examples
        num_tokens = sum(len(row.token_ids) for example in examples for row in example.rows)
        num_trained = sum(example.num_trained_tokens for example in examples)
        num_forked = sum(any(len(rows) > 1 for rows in example.answers) for example in examples)
        longest = max(example.longest_tokens for example in examples)
        lines = [
            f"{len(examples)} rows from {self.source}, {num_tokens} tokens, {num_trained} of them trained, the longest "
            f"sequence {longest} (limit {self.max_tokens})"
        ]
        if num_forked:
            lines.append(
                f"{num_forked} rows are several sequences: the chat template rewrites earlier turns, as it does when "
                "the policy is sampled"
            )
        if self.bad:
            shown = "; ".join(str(row) for row in self.bad[:NUM_SHOWN_BAD_ROWS])
            lines.append(f"{len(self.bad)} of {self.num_read} rows skipped: bad ({shown})")
        if self.num_overlong:
            lines.append(
                f"{self.num_overlong} of {self.num_read} rows dropped: overlong (up to {self.longest_overlong_tokens} "
                f"tokens, limit {self.max_tokens})"
            )
        return lines


@dataclass(frozen=True, slots=True)
class ExampleRules:
    """What is done about rows that cannot be trained on."""

    max_tokens: int
    on_overlong: Literal["drop", "error"] = "drop"
    on_bad_row: Literal["error", "skip"] = "error"
    key: str = "data"
    """Where the run file sets the source."""


def build_examples(
    read: SourceRows, reader: ColumnReader, renderer: ConversationRenderer, rules: ExampleRules
) -> tuple[ExampleTable, ExampleReport]:
    """Renders every row of a source. Raises DataError as `keep_usable` does."""
    found: list[Example | BadRow] = list(read.bad)
    for start in range(0, len(read.rows), _ROWS_AT_ONCE):
        found += _render(read.rows[start : start + _ROWS_AT_ONCE], reader, renderer)
    return keep_usable(read.name, found, rules)


def keep_usable(
    source: str, found: Sequence[Example | BadRow], rules: ExampleRules
) -> tuple[ExampleTable, ExampleReport]:
    """Leaves out what is bad or overlong, and counts it.

    Raises DataError where there are no rows, and, naming the first places, where bad or overlong rows are errors or all
    that there is.
    """
    if not found:
        raise DataError(f"{rules.key}.source must hold at least one row, got none in {source}")
    bad = tuple(item for item in found if isinstance(item, BadRow))
    if len(bad) == len(found):
        shown = "\n".join(f"  {row}" for row in bad[:NUM_SHOWN_BAD_ROWS])
        raise DataError(
            f"none of the {len(found)} rows of {source} can be used:\n{shown}",
            "Check the method, and data.columns where your columns have other names.",
        )
    refuse_bad_rows(source, bad, len(found), rules.on_bad_row, rules.key)
    usable = [item for item in found if isinstance(item, Example)]
    kept = tuple(example for example in usable if example.longest_tokens <= rules.max_tokens)
    overlong = [example for example in usable if example.longest_tokens > rules.max_tokens]
    if overlong and (rules.on_overlong == "error" or not kept):
        first = overlong[0]
        raise DataError(
            f"{len(overlong)} of {len(usable)} rows of {source} are overlong: {rules.max_tokens} tokens are allowed, "
            f"the first ({first.where}) has {first.longest_tokens}",
            'Raise model.max_length where the model allows it, or set data.on_overlong = "drop".',
        )
    table = ExampleTable(kept)
    longest = max((example.longest_tokens for example in overlong), default=0)
    return table, ExampleReport(source, table, len(found), bad, len(overlong), longest, rules.max_tokens)


def _render(rows: Sequence[DataRow], reader: ColumnReader, renderer: ConversationRenderer) -> list[Example | BadRow]:
    """The examples of some rows, in order; those that cannot be read or rendered as bad rows."""
    texts = [_texts(row, reader, renderer) for row in rows]
    good = [item for item in texts if not isinstance(item, BadRow)]
    token_rows = iter(renderer.encode([text for _, _, answers in good for answer in answers for text in answer]))
    examples: list[Example | BadRow] = []
    for item in texts:
        examples.append(item if isinstance(item, BadRow) else _example(item, token_rows))
    return examples


_Rendered = tuple[DataRow, bool | None, list[list[RowText]]]


def _texts(row: DataRow, reader: ColumnReader, renderer: ConversationRenderer) -> _Rendered | BadRow:
    try:
        read = reader.read(row.columns)
        return row, read.label, [renderer.texts(conversation) for conversation in read.conversations]
    except (KeyError, ValueError) as error:
        return BadRow(row.where, _reason(error))


def _reason(error: KeyError | ValueError) -> str:
    return error.message if isinstance(error, MissingColumnError) else str(error)


def _example(rendered: _Rendered, token_rows: Iterator[TokenRow]) -> Example | BadRow:
    row, label, answers = rendered
    found = tuple(tuple(next(token_rows) for _ in answer) for answer in answers)
    if not all(any(one.loss_mask.any() for one in rows) for rows in found):
        return BadRow(row.where, "an answer must have at least one token to train, got an empty text")
    return Example(row.row_id, row.where, row.source, found, label)
