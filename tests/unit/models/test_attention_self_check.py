"""The check at start passes for sound models and names what is wrong with the others."""

import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, GraniteConfig, PhimoeConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from strop.errors import ModelError
from strop.models.attention import ATTENTION_NAME, check_packed_attention, register_attention
from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_config, tiny_model

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}


def model_of(config: object) -> PreTrainedModel:
    register_attention()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME, dtype=torch.float32)
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(std=weight.shape[-1] ** -0.5)
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES + HYBRID_FAMILIES)
def test_every_tiny_family_passes_and_is_left_as_it_was(family: str) -> None:
    model = tiny_model(family).train()
    before = model.config._attn_implementation
    check_packed_attention(model)
    assert model.config._attn_implementation == before
    assert model.training


@pytest.mark.parametrize("family", ["llama", "gemma3", "mamba"])
def test_bfloat16_passes(family: str) -> None:
    check_packed_attention(tiny_model(family, dtype=torch.bfloat16))


def test_a_scaled_head_passes_and_an_unscaled_reading_of_it_fails() -> None:
    model = model_of(GraniteConfig(**SIZES, logits_scaling=4.0, attention_multiplier=0.3))
    check_packed_attention(model)
    with pytest.raises(ModelError, match=r"packed logits of ScaledHead must equal plain ones within 0\.0001"):
        check_packed_attention(ScaledHead(tiny_config("llama")))


class ScaledHead(LlamaForCausalLM):
    """A model that scales its logits in code, where no config says so."""

    def __init__(self, config: object) -> None:
        super().__init__(config)
        register_attention()
        self.set_attn_implementation(ATTENTION_NAME)

    def forward(self, *arguments: object, **keywords: object) -> object:
        outputs = super().forward(*arguments, **keywords)
        outputs.logits = outputs.logits * 2
        return outputs


def test_a_model_that_ignores_the_interface_is_named_with_its_difference() -> None:
    with pytest.raises(ModelError, match=r"packed logits of BloomForCausalLM .* the largest difference is [0-9.e-]+"):
        check_packed_attention(model_of(BloomConfig(**SIZES)))


def test_a_window_that_only_masks_tell_is_named() -> None:
    config = PhimoeConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, sliding_window=8, num_local_experts=2)
    with pytest.raises(ModelError, match="PhimoeAttention must pass its sliding_window of 8"):
        check_packed_attention(model_of(config))


def test_learned_positions_pass_since_positions_are_passed() -> None:
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    check_packed_attention(model_of(config))


def test_the_model_is_restored_when_its_plain_forward_fails() -> None:
    model = FailsPlainly(tiny_config("llama"))
    with pytest.raises(RuntimeError, match="plain forward"):
        check_packed_attention(model)
    assert model.config._attn_implementation == ATTENTION_NAME


class FailsPlainly(ScaledHead):
    """A model whose own forward cannot run."""

    def forward(self, *arguments: object, **keywords: object) -> object:
        raise RuntimeError("plain forward")
