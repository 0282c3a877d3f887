"""The tiny models that all tests stand on are deterministic, real and alive."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_folder, tiny_groups, tiny_model
from support.tokenizer import BOS_ID, IM_END_ID, IM_START_ID, VOCAB_SIZE, tiny_tokenizer


@pytest.mark.parametrize("family", FAMILIES + HYBRID_FAMILIES)
def test_a_seed_gives_the_same_logits_twice_and_another_seed_others(family: str) -> None:
    token_ids = torch.arange(20)[None] * 7 + 10
    with torch.no_grad():
        first, again, other = (tiny_model(family, seed, attn="eager")(token_ids).logits for seed in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first - other).abs().max() > 0.1
    assert 0.2 < first.std() < 5


@pytest.mark.parametrize("family", FAMILIES + HYBRID_FAMILIES)
def test_every_weight_of_a_tiny_model_gets_a_gradient(family: str) -> None:
    model = tiny_model(family, attn="eager")
    logits = model(torch.arange(40)[None] * 7 + 10).logits
    logits.log_softmax(-1)[..., 5].sum().backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert without == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tiny_folder_loads_in_plain_transformers(tmp_path: Path, family: str) -> None:
    folder = tiny_folder(tmp_path, family)
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    token_ids = torch.arange(20)[None] * 7 + 10
    with torch.no_grad():
        expected = tiny_model(family, attn="sdpa")(token_ids).logits
        torch.testing.assert_close(loaded(token_ids).logits, expected, rtol=0, atol=1e-5)
    assert len(AutoTokenizer.from_pretrained(folder)) == VOCAB_SIZE


def test_the_tiny_tokenizer_round_trips_text_and_renders_chat() -> None:
    tokenizer = tiny_tokenizer()
    assert len(tokenizer) == VOCAB_SIZE
    text = "What is 12 + 30? Ünïcode, too."
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True)["input_ids"]
    assert ids[:2] == [BOS_ID, IM_START_ID]
    assert ids.count(IM_END_ID) == 1
    assert ids.count(IM_START_ID) == 2


def test_tiny_groups_share_a_prompt_and_repeat_for_a_seed() -> None:
    groups, again = tiny_groups(seed=3), tiny_groups(seed=3)
    assert len(groups) == 2
    assert all(len(group.samples) == 3 for group in groups)
    for group, twin in zip(groups, again, strict=True):
        for sample, other in zip(group.samples, twin.samples, strict=True):
            np.testing.assert_array_equal(sample.rows[0].token_ids, other.rows[0].token_ids)
            prompt_length = group.prompt.num_tokens
            np.testing.assert_array_equal(sample.rows[0].token_ids[:prompt_length], group.prompt.token_ids)
            assert sample.rows[0].advantages is not None
