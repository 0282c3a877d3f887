"""Tasks built from the config: columns, instructions, messages."""

from typing import Any

import pytest

from strop.config.data import DataConfig
from strop.records import Message
from strop.tasks import QuestionTask, build_task


def make_task(name: str, **settings: Any) -> QuestionTask:
    config = DataConfig.model_validate({"source": {"type": "jsonl", "path": "x"}, "task": name, **settings})
    return build_task(name, config)


def test_the_instruction_of_the_task_is_put_behind_the_question() -> None:
    [turn] = make_task("gsm8k").messages({"question": "How many?"})
    assert turn["content"].startswith("How many?\n")
    assert "####" in turn["content"]


def test_an_instruction_of_the_config_replaces_it_and_an_empty_one_puts_none() -> None:
    [turn] = make_task("gsm8k", instruction="Be quick.").messages({"question": "How many?"})
    assert turn["content"] == "How many?\nBe quick."
    [turn] = make_task("gsm8k", instruction="").messages({"question": "How many?"})
    assert turn["content"] == "How many?"


def test_configured_columns_are_taken_and_no_others() -> None:
    task = make_task("math", prompt_column="q", answer_column="a", instruction="")
    row = {"q": "right", "problem": "wrong", "a": "1", "answer": "2"}
    assert task.messages(row)[0]["content"] == "right"
    assert task.render_gold(row) == r"\boxed{1}"
    with pytest.raises(KeyError, match=r"data\.prompt_column .* got 'q'"):
        task.messages({"problem": "wrong"})


def test_chat_messages_keep_their_turns_and_the_last_gets_the_instruction() -> None:
    turns = [
        Message(role="user", content="Hello"),
        Message(role="assistant", content="Yes?"),
        Message(role="user", content="How many?"),
    ]
    messages = make_task("columns", instruction="Be quick.").messages({"prompt": turns})
    assert messages[:2] == turns[:2]
    assert messages[2] == {"role": "user", "content": "How many?\nBe quick."}
    assert turns[2]["content"] == "How many?"


@pytest.mark.parametrize("value", [None, 3, [], ["text"], [{"role": "user"}], [{"role": "user", "content": ["part"]}]])
def test_a_column_without_text_or_messages_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="column 'prompt' must hold text"):
        make_task("columns").messages({"prompt": value})


def test_the_columns_task_has_a_gold_answer_only_where_a_column_is_named() -> None:
    assert make_task("columns").render_gold({"prompt": "?", "answer": "7"}) is None
    assert make_task("columns", answer_column="answer").render_gold({"prompt": "?", "answer": 7}) == "7"


def test_a_boolean_is_no_gold_answer_of_a_grader_and_one_of_a_function() -> None:
    assert make_task("columns", answer_column="answer").render_gold({"prompt": "?", "answer": True}) == "True"
    with pytest.raises(ValueError, match=r"(?s)column 'answer' must .* got the boolean true.*such as \"yes\""):
        make_task("exact").render_gold({"prompt": "?", "answer": True})
