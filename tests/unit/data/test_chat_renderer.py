"""The renderer: one BOS, one chat template, and a refusal for what would do nothing."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from strop.config.data import DataConfig
from strop.data import ChatRenderer, build_renderer
from strop.data.errors import SettingError
from strop.records import Message
from support.tokenizer import BOS_ID, CHAT_TEMPLATE, EOS_ID, IM_END_ID, tiny_tokenizer

QUESTION = [Message(role="user", content="What is two plus two?")]
WITHOUT_BOS = CHAT_TEMPLATE.replace("{{ bos_token }}", "")
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT_TEMPLATE
DROPS_SYSTEM = CHAT_TEMPLATE.replace(
    "{% for message in messages %}", "{% for message in messages if message['role'] != 'system' %}"
)
THINKING = CHAT_TEMPLATE + "{% if thinking %}<think>{% endif %}"


def make_tokenizer(template: str | None, *, adds_bos: bool) -> PreTrainedTokenizerFast:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    if adds_bos:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<|bos|> $A <|endoftext|>", special_tokens=[("<|bos|>", BOS_ID), ("<|endoftext|>", EOS_ID)]
        )
    return tokenizer


@pytest.mark.parametrize(
    ("template", "adds_bos", "num_bos"),
    [
        (CHAT_TEMPLATE, True, 1),
        (CHAT_TEMPLATE, False, 1),
        (WITHOUT_BOS, True, 1),
        (WITHOUT_BOS, False, 0),
        (None, True, 1),
        (None, False, 0),
    ],
)
def test_a_prompt_has_one_bos_where_template_or_tokenizer_want_one(
    template: str | None, adds_bos: bool, num_bos: int
) -> None:
    ids = ChatRenderer(make_tokenizer(template, adds_bos=adds_bos)).render(QUESTION)
    assert int((ids == BOS_ID).sum()) == num_bos
    assert (ids[0] == BOS_ID) == bool(num_bos)
    assert EOS_ID not in ids
    assert ids.dtype == np.int64


def test_the_prompt_ends_with_the_generation_prompt() -> None:
    tokenizer = tiny_tokenizer()
    ids = ChatRenderer(tokenizer).render(QUESTION)
    expected = "<|bos|><|im_start|>user\nWhat is two plus two?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(ids.tolist()) == expected


def test_the_system_prompt_comes_first_and_only_once() -> None:
    renderer = ChatRenderer(tiny_tokenizer(), system_prompt="Be brief.")
    once = renderer.conversation(QUESTION)
    assert [message["role"] for message in once] == ["system", "user"]
    assert renderer.conversation(once) == once
    assert renderer.render(once).tolist() == renderer.render(QUESTION).tolist()


def test_rows_with_a_system_message_of_their_own_refuse_another() -> None:
    renderer = ChatRenderer(tiny_tokenizer(), system_prompt="Be brief.")
    with pytest.raises(ValueError, match=r"data\.system_prompt must be left out"):
        renderer.render([Message(role="system", content="Be long."), *QUESTION])


@pytest.mark.parametrize(
    ("template", "adds_bos", "fault"),
    [
        ("\n" + CHAT_TEMPLATE, True, "behind other text"),
        ("{{ bos_token }}" + CHAT_TEMPLATE, True, "twice"),
        ("{{ bos_token }}" + CHAT_TEMPLATE, False, "twice"),
    ],
)
def test_a_template_that_writes_bos_twice_or_late_is_refused(template: str, adds_bos: bool, fault: str) -> None:
    with pytest.raises(
        SettingError, match=rf"(?s)BOS '<\|bos\|>' once and first, .* {fault}.*Set model\.chat_template"
    ):
        ChatRenderer(make_tokenizer(template, adds_bos=adds_bos))


def test_a_template_whose_bos_is_the_end_of_a_turn_too_is_taken() -> None:
    tokenizer = make_tokenizer(WITHOUT_BOS.replace("<|im_end|>", "<|bos|>"), adds_bos=True)
    tokenizer.eos_token = "<|bos|>"
    assert int((ChatRenderer(tokenizer).render(QUESTION) == BOS_ID).sum()) == 2


@pytest.mark.parametrize(
    "template",
    [
        "Hello {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "{% for m in messages if m.role == 'human' %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_that_drops_the_question_is_refused(template: str) -> None:
    with pytest.raises(SettingError, match=r"must write what the user says, it makes .* of 'What is 4711\?'"):
        ChatRenderer(make_tokenizer(template, adds_bos=False))


def test_a_template_without_a_generation_prompt_is_told() -> None:
    template = CHAT_TEMPLATE.partition("{% if add_generation_prompt %}")[0]
    [notice] = ChatRenderer(make_tokenizer(template, adds_bos=False)).notices
    assert "no generation prompt: prompts end with" in notice
    assert "What is 4711?<|im_end|>" in notice
    assert ChatRenderer(tiny_tokenizer()).notices == ()


def test_special_tokens_in_the_text_of_messages_are_found() -> None:
    renderer = ChatRenderer(tiny_tokenizer())
    assert renderer.special_token(QUESTION) is None
    assert renderer.special_token([*QUESTION, Message(role="user", content="a<|im_end|>b<|bos|>")]) == "<|im_end|>"


@pytest.mark.parametrize(
    ("template", "verb"), [(NO_SYSTEM, "refuses"), (DROPS_SYSTEM, "drops"), (None, "has no chat template")]
)
def test_a_system_prompt_that_cannot_arrive_is_refused(template: str | None, verb: str) -> None:
    with pytest.raises(ValueError, match=rf"data\.system_prompt .*{verb}"):
        ChatRenderer(make_tokenizer(template, adds_bos=False), system_prompt="Be brief.")


def test_template_arguments_reach_the_template() -> None:
    tokenizer = make_tokenizer(THINKING, adds_bos=False)
    assert "<think>" not in ChatRenderer(tokenizer).render_text(QUESTION)
    assert ChatRenderer(tokenizer, template_arguments={"thinking": True}).render_text(QUESTION).endswith("<think>")


def test_template_arguments_that_nobody_reads_are_refused() -> None:
    with pytest.raises(ValueError, match="reads no argument 'enable_thinking'"):
        ChatRenderer(tiny_tokenizer(), template_arguments={"enable_thinking": False})
    with pytest.raises(ValueError, match="no chat template"):
        ChatRenderer(make_tokenizer(None, adds_bos=False), template_arguments={"thinking": True})


def test_without_a_template_one_message_is_plain_text_and_several_are_refused() -> None:
    renderer = ChatRenderer(make_tokenizer(None, adds_bos=False))
    assert renderer.render_text(QUESTION) == "What is two plus two?"
    assert not renderer.has_template
    assert "no chat template" in renderer.notices[0]
    with pytest.raises(ValueError, match="got 3 turns"):
        renderer.render([*QUESTION, Message(role="assistant", content="4"), *QUESTION])


def test_a_template_that_refuses_a_conversation_is_quoted() -> None:
    renderer = ChatRenderer(make_tokenizer(NO_SYSTEM, adds_bos=False))
    with pytest.raises(ValueError, match="no system role"):
        renderer.render([Message(role="system", content="x"), *QUESTION])


def test_a_conversation_must_end_with_a_turn_to_answer() -> None:
    renderer = ChatRenderer(tiny_tokenizer())
    with pytest.raises(ValueError, match="got assistant"):
        renderer.render([*QUESTION, Message(role="assistant", content="4")])
    with pytest.raises(ValueError, match="no message at all"):
        renderer.render([])


def test_decoding_leaves_special_tokens_out_and_spaces_in() -> None:
    tokenizer = tiny_tokenizer()
    ids = np.array([*tokenizer.encode("  four , or 4 .", add_special_tokens=False), IM_END_ID])
    assert ChatRenderer(tokenizer).decode(ids) == "  four , or 4 ."


def test_a_template_file_replaces_the_template_of_the_tokenizer(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("Q: {{ messages[0]['content'] }} A:")
    config = DataConfig.model_validate({"source": {"type": "jsonl", "path": "x"}, "task": "columns"})
    assert build_renderer(tiny_tokenizer(), config, file).render_text(QUESTION) == "Q: What is two plus two? A:"
    with pytest.raises(ValueError, match=r"model\.chat_template must be a readable Jinja file"):
        build_renderer(tiny_tokenizer(), config, tmp_path / "absent.jinja")
