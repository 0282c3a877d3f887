"""Rows become prompts once: what is counted, and what is refused before a model loads."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from strop.data import ChatRenderer, DataError, DataRow, MissingColumnError, build_prompts, prompt_budget
from strop.data.rows import number_rows
from strop.records import Message
from support.tokenizer import tiny_tokenizer


def make_rows(*questions: str) -> list[DataRow]:
    return list(number_rows("made", ({"q": question, "gold": "4"} for question in questions), None))


def messages_of(row: Mapping[str, Any]) -> list[Message]:
    if "q" not in row:
        raise MissingColumnError("q", row, "data.prompt_column")
    return [Message(role="user", content=row["q"])]


@pytest.fixture
def renderer() -> ChatRenderer:
    return ChatRenderer(tiny_tokenizer())


def lengths(renderer: ChatRenderer, rows: Sequence[DataRow]) -> list[int]:
    return [len(renderer.render(messages_of(row.columns))) for row in rows]


def test_prompts_carry_the_row_and_the_ids_that_the_renderer_gives(renderer: ChatRenderer) -> None:
    rows = make_rows("two plus two?", "The answer?")
    table, report = build_prompts(rows, "columns", messages_of, renderer)
    prompt = table.prompt(1, visit=3)
    assert (prompt.prompt_id, prompt.visit, prompt.task, prompt.source) == ("made:1", 3, "columns", "made")
    assert prompt.token_ids.tolist() == renderer.render(prompt.messages).tolist()
    assert prompt.columns == {"q": "The answer?", "gold": "4"}
    assert (report.num_rows, report.num_prompts, report.num_overlong) == (2, 2, 0)
    assert table.columns == {"q", "gold"}


def test_overlong_prompts_are_dropped_and_counted(renderer: ChatRenderer) -> None:
    rows = make_rows("a", "a b c d e f g h i j k l m n o p", "b")
    budget = lengths(renderer, rows)[0]
    table, report = build_prompts(rows, "columns", messages_of, renderer, budget=budget)
    assert [prompt.prompt_id for prompt in table.prompts()] == ["made:0", "made:2"]
    assert (report.num_rows, report.num_prompts, report.num_overlong) == (3, 2, 1)
    assert report.longest_tokens == budget
    assert "1 of 3 rows dropped: overlong" in report.lines()


def test_overlong_prompts_can_end_the_run(renderer: ChatRenderer) -> None:
    rows = make_rows("a", "a b c d e f g h i j k l m n o p")
    short, long = lengths(renderer, rows)
    with pytest.raises(DataError, match=rf"1 of 2 prompts are overlong: {short} .* \(made:1\) has {long}"):
        build_prompts(rows, "columns", messages_of, renderer, budget=short, on_overlong="error")


def test_all_prompts_overlong_is_an_error_with_both_numbers(renderer: ChatRenderer) -> None:
    rows = make_rows("a b c d e f g h", "a b c d")
    shortest = min(lengths(renderer, rows))
    with pytest.raises(DataError, match=f"every one of the 2 prompts is overlong: 3 tokens are allowed, .* {shortest}"):
        build_prompts(rows, "columns", messages_of, renderer, budget=3)


def test_no_rows_are_an_error(renderer: ChatRenderer) -> None:
    with pytest.raises(DataError, match="0 prompts"):
        build_prompts([], "columns", messages_of, renderer)


def test_duplicates_are_counted_and_served(renderer: ChatRenderer) -> None:
    table, report = build_prompts(make_rows("a", "b", "a", "a"), "columns", messages_of, renderer)
    assert report.num_duplicates == 2
    assert len(table) == 4


def test_a_missing_column_names_the_row_the_columns_and_the_nearest_name(renderer: ChatRenderer) -> None:
    rows = list(number_rows("made", [{"q": "a"}, {"qq": "a", "gold": "4"}], None))
    with pytest.raises(DataError) as caught:
        build_prompts(rows, "columns", messages_of, renderer)
    message = str(caught.value)
    assert message.startswith("made:1: data.prompt_column must name a column of the data, got 'q'")
    assert "(did you mean 'qq'?)" in message
    assert "columns found: gold, qq" in message


def test_only_columns_that_every_row_has_are_offered(renderer: ChatRenderer) -> None:
    rows = list(number_rows("made", [{"q": "a", "x": 1}, {"q": "b", "y": 1}], None))
    table, _ = build_prompts(rows, "columns", messages_of, renderer)
    assert table.columns == {"q"}


def test_the_fingerprint_follows_ids_and_tokens(renderer: ChatRenderer) -> None:
    def fingerprint(*questions: str) -> str:
        return build_prompts(make_rows(*questions), "columns", messages_of, renderer)[0].fingerprint

    assert fingerprint("a", "b") == fingerprint("a", "b")
    assert len({fingerprint("a", "b"), fingerprint("b", "a"), fingerprint("a"), fingerprint("a", "c")}) == 4


def test_an_empty_plain_text_prompt_is_refused_by_row() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(DataError, match="made:1: a prompt must have at least one token"):
        build_prompts(make_rows("a", ""), "columns", messages_of, ChatRenderer(tokenizer))


@pytest.mark.parametrize(
    ("max_prompt_tokens", "max_length", "budget"), [(None, None, None), (50, None, 50), (None, 100, 60), (50, 100, 50)]
)
def test_the_budget_is_what_the_completion_leaves(
    max_prompt_tokens: int | None, max_length: int | None, budget: int | None
) -> None:
    assert prompt_budget(max_prompt_tokens, max_length, max_new_tokens=40) == budget


def test_a_budget_that_cannot_hold_is_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"at most 60 .* got 61"):
        prompt_budget(61, 100, 40)
    with pytest.raises(ValueError, match="100 of the model's 100 tokens"):
        prompt_budget(None, 100, 100)
