"""The stop set is the union of what model, tokenizer, template and user say, each by name."""

import pytest
from transformers import GenerationConfig

from strop.errors import ModelError
from strop.models.stops import chat_turn_end, find_stops
from support.tokenizer import EOS_ID, IM_END_ID, tiny_tokenizer


def test_every_source_adds_its_ids_and_is_named() -> None:
    stops = find_stops(tiny_tokenizer(), GenerationConfig(eos_token_id=[EOS_ID, 7]), [9, IM_END_ID])
    assert stops.token_ids == {EOS_ID, 7, 9, IM_END_ID}
    origins = {token.token_id: token.origins for token in stops.tokens}
    assert origins[EOS_ID] == ("generation_config", "tokenizer eos")
    assert origins[7] == ("generation_config",)
    assert origins[IM_END_ID] == ("chat turn end", "user")
    assert str(stops).startswith("2 '<|endoftext|>' (generation_config, tokenizer eos), 4 '<|im_end|>'")


def test_no_source_at_all_is_said_in_words() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token, tokenizer.chat_template = None, None
    stops = find_stops(tokenizer, GenerationConfig())
    assert stops.token_ids == frozenset()
    assert "token budget" in str(stops)


@pytest.mark.parametrize("token_id", [-1, 320])
def test_a_user_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    with pytest.raises(ModelError, match=r"stop_token_ids"):
        find_stops(tiny_tokenizer(), GenerationConfig(), [token_id])


def test_a_template_that_ends_turns_with_plain_text_adds_no_stop() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}\n###\n{% endfor %}"
    assert chat_turn_end(tokenizer) is None


def test_a_template_that_drops_old_answers_adds_no_stop() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}<|im_end|>"
    assert chat_turn_end(tokenizer) is None


def test_a_template_that_cannot_render_a_conversation_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('only one turn') }}"
    with pytest.raises(ModelError, match="only one turn"):
        chat_turn_end(tokenizer)
