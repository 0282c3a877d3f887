"""Rows become prompts once, before any model loads: rendered, measured, counted.

    rows --task.messages--> conversations --renderer--> token ids --(length)--> PromptTable + DataReport

The table is what the prompt stream serves; the report is what a person reads at the start of a run. A prompt
longer than the budget is overlong: dropped and counted, or an error, as the config says; all of them overlong is
always an error, with both numbers.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from strop.data.errors import DataError, SettingError
from strop.data.renderer import ChatRenderer
from strop.data.report import DataReport
from strop.data.rows import DataRow
from strop.records import Message, Prompt

_ROWS_AT_ONCE = 1024
MessagesOf = Callable[[Mapping[str, Any]], list[Message]]


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """A data row with its prompt, ready to be served."""

    row: DataRow
    messages: tuple[Message, ...]
    token_ids: NDArray[np.int64]
    """[P]"""

    def prompt(self, task: str, visit: int) -> Prompt:
        """The prompt of this row, served for the `visit`-th time."""
        return Prompt(
            prompt_id=self.row.row_id,
            visit=visit,
            token_ids=self.token_ids,
            messages=self.messages,
            task=task,
            columns=self.row.columns,
            source=self.row.source,
        )


@dataclass(frozen=True)
class PromptTable:
    """The rendered rows of a data set, in the order of the data, without those that were dropped."""

    task: str
    rows: tuple[RenderedRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def prompt(self, index: int, visit: int = 0) -> Prompt:
        """The prompt of row `index`, served for the `visit`-th time."""
        return self.rows[index].prompt(self.task, visit)

    def prompts(self) -> list[Prompt]:
        """Every prompt once, in the order of the data: what evaluation asks."""
        return [self.prompt(index) for index in range(len(self))]

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


def prompt_budget(max_prompt_tokens: int | None, max_length: int | None, max_new_tokens: int) -> int | None:
    """The longest prompt allowed: `max_prompt_tokens`, or what the model's maximum leaves beside the completion.

    None where neither is known. Raises SettingError where prompt and completion cannot both fit the model.
    """
    if max_length is None:
        return max_prompt_tokens
    room = max_length - max_new_tokens
    if room < 1:
        raise SettingError(
            f"rollout.max_new_tokens must leave room for a prompt: {max_new_tokens} of the model's {max_length} tokens "
            "are for the completion; lower it"
        )
    if max_prompt_tokens is not None and max_prompt_tokens > room:
        raise SettingError(
            f"data.max_prompt_tokens must be at most {room} (the model's {max_length} tokens minus {max_new_tokens} "
            f"for the completion), got {max_prompt_tokens}"
        )
    return room if max_prompt_tokens is None else max_prompt_tokens


def build_prompts(
    rows: Sequence[DataRow],
    task: str,
    messages_of: MessagesOf,
    renderer: ChatRenderer,
    *,
    budget: int | None = None,
    on_overlong: Literal["drop", "error"] = "drop",
) -> tuple[PromptTable, DataReport]:
    """Renders every row of a task, `messages_of` being the task's `messages`, and counts what was found.

    Raises DataError where there are no rows, where a row cannot be rendered (wrong column, refused by the chat
    template: row id and reason), where all prompts are overlong, or any under `on_overlong = "error"`.
    """
    if not rows:
        raise DataError("the data must hold at least one row, got 0 prompts")
    rendered = _render(rows, messages_of, renderer)
    kept = [row for row in rendered if budget is None or len(row.token_ids) <= budget]
    if len(kept) < len(rendered):
        _check_overlong(rendered, kept, budget or 0, on_overlong)
    table = PromptTable(task, tuple(kept))
    notices = (renderer.notice,) if renderer.notice else ()
    return table, _report(rendered, table, budget, notices)


def _render(rows: Sequence[DataRow], messages_of: MessagesOf, renderer: ChatRenderer) -> list[RenderedRow]:
    conversations = [_conversation(row, messages_of, renderer) for row in rows]
    rendered = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        stop = start + _ROWS_AT_ONCE
        token_ids = renderer.encode_many([text for _, text in conversations[start:stop]])
        for row, (messages, _), ids in zip(rows[start:stop], conversations[start:stop], token_ids, strict=True):
            if len(ids) == 0:
                raise DataError(f"{row.row_id}: a prompt must have at least one token, got an empty text")
            rendered.append(RenderedRow(row, messages, ids))
    return rendered


def _conversation(row: DataRow, messages_of: MessagesOf, renderer: ChatRenderer) -> tuple[tuple[Message, ...], str]:
    """The row's messages, system prompt included, and the text of its prompt; names the row in an error."""
    try:
        messages = renderer.conversation(messages_of(row.columns))
        return tuple(messages), renderer.render_text(messages)
    except (KeyError, ValueError) as error:
        raise DataError(f"{row.row_id}: {error}") from error


def _check_overlong(
    rendered: Sequence[RenderedRow], kept: Sequence[RenderedRow], budget: int, on_overlong: Literal["drop", "error"]
) -> None:
    num_overlong = len(rendered) - len(kept)
    remedy = "raise data.max_prompt_tokens, or lower rollout.max_new_tokens where the model's maximum is the limit"
    if not kept:
        shortest = min(len(row.token_ids) for row in rendered)
        raise DataError(
            f"every one of the {num_overlong} prompts is overlong: {budget} tokens are allowed, "
            f"the shortest has {shortest}; {remedy}"
        )
    if on_overlong == "error":
        first = next(row for row in rendered if len(row.token_ids) > budget)
        raise DataError(
            f"{num_overlong} of {len(rendered)} prompts are overlong: {budget} tokens are allowed, the first "
            f'({first.row.row_id}) has {len(first.token_ids)}; {remedy}, or set data.on_overlong = "drop"'
        )


def _report(
    rendered: Sequence[RenderedRow], table: PromptTable, budget: int | None, notices: tuple[str, ...]
) -> DataReport:
    lengths = [len(row.token_ids) for row in table.rows]
    return DataReport(
        sources=tuple(sorted({row.row.source for row in table.rows})),
        num_rows=len(rendered),
        num_prompts=len(table),
        num_overlong=len(rendered) - len(table),
        num_duplicates=len(table) - len({row.token_ids.tobytes() for row in table.rows}),
        shortest_tokens=min(lengths),
        longest_tokens=max(lengths),
        mean_tokens=sum(lengths) / len(lengths),
        budget_tokens=budget,
        columns=tuple(sorted(table.columns)),
        notices=notices,
    )
