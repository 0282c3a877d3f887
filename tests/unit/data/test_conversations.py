"""Conversations of several turns: sampled tokens stay as they were sampled, what stands between is the template's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.data import ChatRenderer, Transcript
from strop.records import Completion, Continuation, FinishState, Message
from support.chat_templates import END_OF_TURN, TEMPLATES, chat_tokenizer, end_of_turn
from support.tokenizer import BOS_ID, EOS_ID

FAMILIES = tuple(TEMPLATES)
QUESTION = [Message(role="user", content="What is two plus two?")]
SAID = [Message(role="user", content="And 3 more?")]
TOKENIZERS = {family: chat_tokenizer(family) for family in FAMILIES}


def renderer_of(family: str, **settings: Any) -> ChatRenderer:
    return ChatRenderer(TOKENIZERS[family], **settings)


def encode(family: str, text: str) -> list[int]:
    return list(TOKENIZERS[family].encode(text, add_special_tokens=False))


def text_of(family: str, ids: Sequence[int]) -> str:
    return str(TOKENIZERS[family].decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def turn(family: str, text: str, *, stops: bool = True) -> list[int]:
    return encode(family, text) + ([end_of_turn(family, TOKENIZERS[family])] if stops else [])


def extend(
    family: str, ids: Sequence[int], messages: Sequence[Message] = QUESTION, said: Sequence[Message] = SAID, **kw: Any
) -> Continuation:
    stops = frozenset({end_of_turn(family, TOKENIZERS[family]), EOS_ID})
    return renderer_of(family, **kw).extend(messages, np.array(ids, dtype=np.int64), said, stops)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_conversation_is_what_the_template_writes(family: str) -> None:
    # Sampled as the tokenizer would have written it: the row must then be the whole text, encoded at once. In the style
    # of Llama 3 the two newlines before a turn are one token in a prompt and two before a word: there only the text is
    # the same, and the row keeps what the policy saw.
    renderer = renderer_of(family)
    sampled = turn(family, "The answer is four.")
    found = extend(family, sampled)
    assert not found.forks
    row = [*renderer.render(QUESTION).tolist(), *sampled, *found.token_ids.tolist()]
    whole = [*QUESTION, Message(role="assistant", content="The answer is four."), *SAID]
    assert text_of(family, row) == text_of(family, renderer.render(whole).tolist())
    assert (row == renderer.render(whole).tolist()) == (family != "llama3")
    assert list(found.messages) == renderer.conversation(whole)


@pytest.mark.parametrize("family", FAMILIES)
def test_there_is_one_bos_at_most_and_it_comes_first(family: str) -> None:
    sampled = turn(family, "four")
    row = [*renderer_of(family).render(QUESTION).tolist(), *sampled, *extend(family, sampled).token_ids.tolist()]
    assert row.count(BOS_ID) == (1 if family in ("llama3", "gemma", "chatml") else 0)
    assert BOS_ID not in row[1:]


@pytest.mark.parametrize("family", ["qwen3", "smollm2", "gemma", "chatml"])
def test_the_newline_behind_the_end_of_a_turn_is_kept(family: str) -> None:
    added = text_of(family, extend(family, turn(family, "four")).token_ids.tolist())
    assert added.startswith("\n<")
    assert END_OF_TURN[family] not in added.split("And 3 more?")[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_that_was_cut_gets_its_end_from_the_template(family: str) -> None:
    added = text_of(family, extend(family, turn(family, "The answer", stops=False)).token_ids.tolist())
    assert added.startswith(END_OF_TURN[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_another_stop_token_stays_and_the_end_of_the_turn_follows(family: str) -> None:
    found = extend(family, [*turn(family, "four", stops=False), EOS_ID])
    assert not found.forks
    assert found.token_ids[0] == end_of_turn(family, TOKENIZERS[family])
    assert found.messages[-2]["content"] == "four"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["", " \n four \n\n", "\nfour", "four "])
def test_spaces_around_a_turn_do_not_fork_it(family: str, text: str) -> None:
    sampled = turn(family, text)
    found = extend(family, sampled)
    assert not found.forks
    plain = extend(family, turn(family, "four"))
    assert found.token_ids.tolist() == plain.token_ids.tolist()


@pytest.mark.parametrize("family", FAMILIES)
@given(ids=st.lists(st.integers(5, 310), max_size=12))
def test_any_sampled_ids_are_kept_and_followed_by_the_same_tokens(family: str, ids: list[int]) -> None:
    # Most of these are broken bytes, or ids that the tokenizer would never give for their text.
    found = extend(family, [*ids, end_of_turn(family, TOKENIZERS[family])])
    assert not found.forks
    assert found.token_ids.tolist() == extend(family, turn(family, "four")).token_ids.tolist()


def test_ids_that_encode_differently_stay_as_they_were_sampled() -> None:
    merged = encode("chatml", "question")
    single = [encode("chatml", letter)[0] for letter in "question"]
    assert text_of("chatml", single) == "question"
    assert merged != single
    prompt = renderer_of("chatml").render(QUESTION)
    transcript = Transcript(prompt)
    transcript.sampled(completion([*single, end_of_turn("chatml", TOKENIZERS["chatml"])]))
    transcript.continued(extend("chatml", [*single, end_of_turn("chatml", TOKENIZERS["chatml"])]))
    [row] = transcript.rows
    assert row.token_ids[row.loss_mask].tolist() == [*single, end_of_turn("chatml", TOKENIZERS["chatml"])]
    assert row.token_ids[: len(prompt)].tolist() == prompt.tolist()


def test_thoughts_that_the_template_leaves_out_fork_the_conversation() -> None:
    sampled = turn("qwen3", "<think>\n2 and 2\n</think>\n\nfour")
    found = extend("qwen3", sampled)
    assert found.forks
    text = text_of("qwen3", found.token_ids.tolist())
    assert "2 and 2" not in text
    assert "<|im_start|>assistant\nfour<|im_end|>\n<|im_start|>user\nAnd 3 more?" in text
    assert found.token_ids.tolist() == renderer_of("qwen3").render(list(found.messages)).tolist()


def test_thoughts_before_a_tool_answers_are_kept_and_do_not_fork() -> None:
    sampled = turn("qwen3", "<think>\n2 and 2\n</think>\n\nadd(2, 2)")
    found = extend("qwen3", sampled, said=[Message(role="tool", content="4")])
    assert not found.forks
    assert text_of("qwen3", found.token_ids.tolist()).startswith("\n<|im_start|>user\n<tool_response>\n4\n")


def test_an_empty_thought_in_the_generation_prompt_forks_too() -> None:
    # The prompt ends with an empty thought that the template does not write for an earlier turn.
    found = extend("qwen3", turn("qwen3", "four"), template_arguments={"enable_thinking": False})
    assert found.forks


def test_a_system_prompt_stands_before_a_conversation_that_goes_on() -> None:
    found = extend("chatml", turn("chatml", "four"), system_prompt="Be brief.")
    assert [message["role"] for message in found.messages] == ["system", "user", "assistant", "user"]
    assert "Be brief." not in text_of("chatml", found.token_ids.tolist())


def test_what_was_said_must_be_something_to_answer() -> None:
    with pytest.raises(ValueError, match="must end with a turn to answer"):
        extend("chatml", turn("chatml", "four"), said=[])


# ------------------------------------------------------------------------------------------ rows


def completion(ids: Sequence[int], version: int = 0) -> Completion:
    count = len(ids)
    return Completion(
        np.array(ids, dtype=np.int64),
        -np.arange(1, count + 1, dtype=np.float32),
        np.full(count, version),
        FinishState.STOPPED,
    )


def converse(family: str, turns: Sequence[str]) -> tuple[Transcript, list[list[int]]]:
    """A conversation with these turns of the policy; what the policy saw before each of them."""
    renderer = renderer_of(family)
    messages: Sequence[Message] = QUESTION
    transcript = Transcript(renderer.render(QUESTION))
    seen = []
    for version, text in enumerate(turns):
        seen.append(transcript.token_ids.tolist())
        sampled = turn(family, text)
        transcript.sampled(completion(sampled, version))
        found = extend(family, sampled, messages)
        transcript.continued(found)
        messages = found.messages
    return transcript, seen


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_fork_three_turns_are_one_row_with_loss_on_what_was_sampled(family: str) -> None:
    turns = ["four", "  seven\n", "bye"]
    transcript, _ = converse(family, turns)
    [row] = transcript.rows
    assert row.token_ids[row.loss_mask].tolist() == [token for text in turns for token in turn(family, text)]
    lengths = [len(turn(family, text)) for text in turns]
    assert row.policy_versions[row.loss_mask].tolist() == [v for v, n in enumerate(lengths) for _ in range(n)]
    assert row.rollout_logprobs[row.loss_mask].tolist() == [-i for n in lengths for i in range(1, n + 1)]
    assert not row.rollout_logprobs[~row.loss_mask].any()
    assert (row.policy_versions[~row.loss_mask] == -1).all()


def test_each_fork_is_a_row_that_begins_with_what_the_policy_saw() -> None:
    turns = ["<think>\na\n</think>\n\nfour", "<think>\nb\n</think>\n\nseven", "bye"]
    transcript, seen = converse("qwen3", turns)
    rows = transcript.rows
    assert len(rows) == 3
    for row, prompt, text in zip(rows, seen, turns, strict=True):
        sampled = turn("qwen3", text)
        assert row.token_ids.tolist()[: len(prompt) + len(sampled)] == [*prompt, *sampled]
        assert row.loss_mask.tolist()[: len(prompt) + len(sampled)] == [False] * len(prompt) + [True] * len(sampled)
    assert "<think>" not in text_of("qwen3", seen[2])


def test_a_row_in_which_nothing_was_sampled_is_none() -> None:
    assert Transcript(np.array([1, 2])).rows == ()
