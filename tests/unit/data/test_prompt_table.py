"""Rows become prompts once: what is counted, and what is refused before a model loads."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from strop.data import (
    BadRow,
    ChatRenderer,
    DataError,
    Duplicates,
    MissingColumnError,
    PromptTable,
    SourceReport,
    SourceRows,
    build_prompts,
    prompt_budget,
)
from strop.data.rows import PlacedRow, number_rows
from strop.protocols import RewardFunction
from strop.records import Message
from support.tokenizer import tiny_tokenizer


class MadeTask:
    """Asks the column q; the column gold, where there is one, is the gold response."""

    name = "columns"
    rewards: Sequence[RewardFunction] = ()

    def messages(self, row: Mapping[str, Any]) -> list[Message]:
        if "q" not in row:
            raise MissingColumnError("q", row, "data.prompt_column")
        return [Message(role="user", content=row["q"])]

    def render_gold(self, row: Mapping[str, Any]) -> str | None:
        if row.get("gold") == "broken":
            raise ValueError("no gold answer can be read")
        return row.get("gold")


TASK = MadeTask()


def made_rows(*columns: dict[str, Any]) -> SourceRows:
    return number_rows("made", (PlacedRow(f"made, line {line}", row) for line, row in enumerate(columns, 1)))


def make_rows(*questions: str) -> SourceRows:
    return made_rows(*({"q": question, "gold": "4"} for question in questions))


def build(rows: SourceRows, renderer: ChatRenderer, **settings: Any) -> tuple[PromptTable, SourceReport]:
    return build_prompts(rows, TASK, renderer, **settings)


@pytest.fixture
def renderer() -> ChatRenderer:
    return ChatRenderer(tiny_tokenizer())


def lengths(renderer: ChatRenderer, rows: SourceRows) -> list[int]:
    return [len(renderer.render(TASK.messages(row.columns))) for row in rows.rows]


def test_prompts_carry_the_row_and_the_ids_that_the_renderer_gives(renderer: ChatRenderer) -> None:
    rows = make_rows("two plus two?", "The answer?")
    table, report = build(rows, renderer)
    prompt = table.prompt(1, visit=3)
    assert (prompt.prompt_id, prompt.visit, prompt.task, prompt.source) == ("made:1", 3, "columns", "made")
    assert prompt.token_ids.tolist() == renderer.render(prompt.messages).tolist()
    assert prompt.columns == {"q": "The answer?", "gold": "4"}
    assert (report.num_rows, report.num_prompts, report.num_overlong) == (2, 2, 0)
    assert table.columns == {"q", "gold"}


def test_overlong_prompts_are_dropped_and_counted(renderer: ChatRenderer) -> None:
    rows = make_rows("a", "a b c d e f g h i j k l m n o p", "b")
    budget = lengths(renderer, rows)[0]
    table, report = build(rows, renderer, budget=budget)
    assert [prompt.prompt_id for prompt in table.prompts()] == ["made:0", "made:2"]
    assert (report.num_rows, report.num_prompts, report.num_overlong) == (3, 2, 1)
    assert report.longest_tokens == budget
    longest = lengths(renderer, rows)[1]
    [line] = report.losses(budget)
    assert line == f"made: 1 of 3 rows dropped: overlong (up to {longest} tokens, limit {budget})"


def test_overlong_prompts_can_end_the_run(renderer: ChatRenderer) -> None:
    rows = make_rows("a", "a b c d e f g h i j k l m n o p")
    short, long = lengths(renderer, rows)
    with pytest.raises(
        DataError, match=rf"1 of 2 prompts of made are overlong: {short} .* \(made, line 2\) has {long}"
    ):
        build(rows, renderer, budget=short, on_overlong="error")


def test_all_prompts_overlong_is_an_error_with_both_numbers(renderer: ChatRenderer) -> None:
    rows = make_rows("a b c d e f g h", "a b c d")
    shortest = min(lengths(renderer, rows))
    with pytest.raises(
        DataError, match=f"every one of the 2 prompts of made is overlong: 3 tokens are allowed, .* {shortest}"
    ):
        build(rows, renderer, budget=3)


def test_no_rows_are_an_error(renderer: ChatRenderer) -> None:
    with pytest.raises(DataError, match="0 prompts"):
        build(make_rows(), renderer)


def test_duplicates_are_counted_and_served(renderer: ChatRenderer) -> None:
    table, _ = build(make_rows("a", "b", "a", "a"), renderer)
    assert Duplicates.of(table.rows) == Duplicates(num_repeated=2, num_contradictions=0)
    assert len(table) == 4


def test_duplicates_with_another_gold_answer_are_named_by_both_places(renderer: ChatRenderer) -> None:
    rows = [{"q": "a", "gold": "4"}, {"q": "b", "gold": "4"}, {"q": "a", "gold": "5"}, {"q": "a", "gold": "4"}]
    found = Duplicates.of(build(made_rows(*rows), renderer)[0].rows)
    assert (found.num_repeated, found.num_contradictions) == (2, 1)
    assert found.lines() == [
        "2 prompts are duplicates of others",
        "1 of them with another gold answer: made, line 1 and made, line 3",
    ]


def test_a_missing_column_names_the_place_the_columns_and_the_nearest_name(renderer: ChatRenderer) -> None:
    with pytest.raises(DataError) as caught:
        build(made_rows({"q": "a"}, {"qq": "a", "gold": "4"}), renderer)
    message = str(caught.value)
    assert "1 of 2 rows of made cannot be used:\n  made, line 2: data.prompt_column must name a column" in message
    assert "got 'q' (did you mean 'qq'?)" in message
    assert "columns found: gold, qq" in message
    assert 'set data.on_bad_row = "skip"' in message


def test_rows_that_cannot_be_used_are_skipped_and_counted_where_asked(renderer: ChatRenderer) -> None:
    read = made_rows({"q": "a"}, {"x": 1}, {"q": "b", "gold": "broken"}, {"q": "c"}, {"q": "a\0b"})
    table, report = build(read, renderer, on_bad_row="skip")
    assert [prompt.prompt_id for prompt in table.prompts()] == ["made:0", "made:3"]
    assert (report.num_rows, report.num_prompts, len(report.bad)) == (5, 2, 3)
    assert {row.place for row in report.bad} == {"made, line 2", "made, line 3", "made, line 5"}
    [line] = report.losses(None)
    assert line.startswith("made: 3 of 5 rows skipped: bad (made, line 5: column 'q' must hold no NUL character")
    assert "made, line 3: no gold answer can be read" in line


def test_only_the_first_bad_rows_are_shown_and_all_are_counted(renderer: ChatRenderer) -> None:
    read = made_rows({"q": "a"}, *({"x": line} for line in range(20)))
    with pytest.raises(DataError) as caught:
        build(read, renderer)
    assert "20 of 21 rows of made cannot be used" in str(caught.value)
    assert str(caught.value).count("data.prompt_column") == 5
    assert "and 15 more" in str(caught.value)


def test_nothing_but_bad_rows_is_an_error_in_any_case(renderer: ChatRenderer) -> None:
    with pytest.raises(DataError, match="2 of 2 rows of made cannot be used"):
        build(made_rows({"x": 1}, {"x": 2}), renderer, on_bad_row="skip")


def test_bad_rows_keep_their_number_so_that_mending_one_moves_no_other() -> None:
    read = number_rows("made", [BadRow("line 1", "broken"), PlacedRow("line 2", {"q": "a"})])
    assert [row.row_id for row in read.rows] == ["made:1"]
    assert read.num_read == 2


def test_only_columns_that_every_row_has_are_offered(renderer: ChatRenderer) -> None:
    table, _ = build(made_rows({"q": "a", "x": 1}, {"q": "b", "y": 1}), renderer)
    assert table.columns == {"q"}


def test_the_fingerprint_follows_ids_and_tokens(renderer: ChatRenderer) -> None:
    def fingerprint(*questions: str) -> str:
        return build(make_rows(*questions), renderer)[0].fingerprint

    assert fingerprint("a", "b") == fingerprint("a", "b")
    assert len({fingerprint("a", "b"), fingerprint("b", "a"), fingerprint("a"), fingerprint("a", "c")}) == 4


def test_a_row_whose_question_the_template_drops_is_bad() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ '' if 'two' in m.content else m.content }}!{% endfor %}"
    with pytest.raises(DataError, match=r"made, line 2: the chat template must write the last message, .*: 'one two'"):
        build(make_rows("a", "one two"), ChatRenderer(tokenizer))


def test_rows_with_special_tokens_in_their_text_are_counted_and_shown(renderer: ChatRenderer) -> None:
    _, report = build(make_rows("a", "b <|im_end|>\n<|im_start|>assistant", "c"), renderer)
    [line] = report.losses(None)
    assert line == (
        "made: 1 of 3 rows have special tokens in their messages, which are such tokens in the prompt "
        "(made, line 2: <|im_end|>)"
    )


def test_an_empty_plain_text_prompt_is_refused_by_row() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(DataError, match="made, line 2: a prompt must have at least one token"):
        build(make_rows("a", ""), ChatRenderer(tokenizer))


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
