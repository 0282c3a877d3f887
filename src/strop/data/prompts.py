"""Rows become prompts once, before any model loads: rendered, measured, counted.

    SourceRows --task.messages, task.render_gold--> conversations --renderer--> token ids --(length)--> PromptTable
        \\--------- bad rows ---------------------------------------------> SourceReport <--- counts ---/

The table is what the prompt stream serves; the report is what a person reads at the start of a run. A row that the
task or the chat template cannot use is a bad row, as one that the reader could not read; a prompt longer than the
budget is overlong. Either is left out and counted, or an error, as the config says; where none is left, it is always
an error.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from strop.data.errors import DataError, MissingColumnError, SettingError
from strop.data.renderer import ChatRenderer
from strop.data.report import SourceReport
from strop.data.rows import BadRow, DataRow, SourceRows, refuse_bad_rows
from strop.data.table import PromptTable, RenderedRow
from strop.protocols import Task
from strop.records import Message

_ROWS_AT_ONCE = 1024
_OF_TOOLS = ("tool", "ipython", "function")
Policy = Literal["error", "skip"]


def prompt_budget(
    max_prompt_tokens: int | None, max_length: int | None, max_new_tokens: int, section: str = "rollout"
) -> int | None:
    """The longest prompt allowed: `max_prompt_tokens`, or what the model's maximum leaves beside the completion.

    None where neither is known. Raises SettingError where prompt and completion cannot both fit the model; `section`
    is where the run file gives `max_new_tokens`.
    """
    if max_length is None:
        return max_prompt_tokens
    room = max_length - max_new_tokens
    if room < 1:
        raise SettingError(
            f"{section}.max_new_tokens must leave room for a prompt: {max_new_tokens} of the model's {max_length} "
            "tokens are for the completion; lower it"
        )
    if max_prompt_tokens is not None and max_prompt_tokens > room:
        raise SettingError(
            f"data.max_prompt_tokens must be at most {room} (the model's {max_length} tokens minus the "
            f"{max_new_tokens} of {section}.max_new_tokens), got {max_prompt_tokens}"
        )
    return room if max_prompt_tokens is None else max_prompt_tokens


def build_prompts(
    read: SourceRows,
    task: Task,
    renderer: ChatRenderer,
    *,
    budget: int | None = None,
    on_overlong: Literal["drop", "error"] = "drop",
    on_bad_row: Policy = "error",
    key: str = "data",
    check_row: Callable[[Mapping[str, Any]], None] | None = None,
) -> tuple[PromptTable, SourceReport]:
    """Renders every row of a source for its task, and counts what was found.

    `check_row` raises ValueError for columns that a grader cannot read. `key` is where the run file sets task and
    columns of these rows. Raises DataError where there are no rows, where bad rows are errors or all that there is
    (naming the first ones with file and line), and where overlong prompts are.
    """
    if read.num_read == 0:
        raise DataError("the data must hold at least one row, got 0 prompts")
    rendered, unusable = _render(read.rows, task, renderer, key, check_row)
    bad = (*read.bad, *unusable)
    refuse_bad_rows(read.name, bad, read.num_read, on_bad_row, key)
    kept = [row for row in rendered if budget is None or len(row.token_ids) <= budget]
    if len(kept) < len(rendered):
        _check_overlong(read.name, rendered, budget or 0, on_overlong)
    table = PromptTable(tuple(kept))
    return table, SourceReport.of(read, task.name, bad, rendered, table)


def _render(
    rows: Sequence[DataRow],
    task: Task,
    renderer: ChatRenderer,
    key: str,
    check_row: Callable[[Mapping[str, Any]], None] | None,
) -> tuple[list[RenderedRow], list[BadRow]]:
    rendered: list[RenderedRow] = []
    bad: list[BadRow] = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        posed = [_pose(row, task, renderer, key, check_row) for row in rows[start : start + _ROWS_AT_ONCE]]
        bad += [item for item in posed if isinstance(item, BadRow)]
        asked = [item for item in posed if not isinstance(item, BadRow)]
        token_ids = renderer.encode_many([text for _, _, text, _ in asked])
        for (row, messages, _, gold), ids in zip(asked, token_ids, strict=True):
            if len(ids) == 0:
                bad.append(BadRow(row.where, "a prompt must have at least one token, got an empty text"))
            else:
                special = renderer.special_token(task.messages(row.columns))
                rendered.append(RenderedRow(row, messages, ids, task.name, gold, special))
    return rendered, bad


def _pose(
    row: DataRow,
    task: Task,
    renderer: ChatRenderer,
    key: str,
    check_row: Callable[[Mapping[str, Any]], None] | None,
) -> tuple[DataRow, tuple[Message, ...], str, str | None] | BadRow:
    """The row's messages, system prompt included, the text of its prompt, and its gold response."""
    try:
        messages = renderer.conversation(task.messages(row.columns))
        text = renderer.render_text(messages)
        _check_asked(messages[-1], text)
        gold = task.render_gold(row.columns)
        if check_row is not None:
            check_row(row.columns)
        return row, tuple(messages), text, gold
    except MissingColumnError as error:
        return BadRow(row.where, str(error.under(key)))
    except (KeyError, ValueError) as error:
        return BadRow(row.where, str(error))


def _check_asked(last: Message, text: str) -> None:
    """Raises SettingError where the prompt lacks its last message; what a tool says, templates may write otherwise."""
    if last["role"] not in _OF_TOOLS and last["content"].strip() not in text:
        raise SettingError(
            f"the chat template must write the last message, it drops that of role {last['role']!r}: "
            f"{last['content'][:60]!r}"
        )


def _check_overlong(
    source: str, rendered: Sequence[RenderedRow], budget: int, on_overlong: Literal["drop", "error"]
) -> None:
    overlong = [row for row in rendered if len(row.token_ids) > budget]
    remedy = "raise data.max_prompt_tokens, or lower rollout.max_new_tokens where the model's maximum is the limit"
    if len(overlong) == len(rendered):
        shortest = min(len(row.token_ids) for row in rendered)
        raise DataError(
            f"every one of the {len(overlong)} prompts of {source} is overlong: {budget} tokens are allowed, "
            f"the shortest has {shortest}; {remedy}"
        )
    if on_overlong == "error":
        first = overlong[0]
        raise DataError(
            f"{len(overlong)} of {len(rendered)} prompts of {source} are overlong: {budget} tokens are allowed, the "
            f'first ({first.row.where}) has {len(first.token_ids)}; {remedy}, or set data.on_overlong = "drop"'
        )
