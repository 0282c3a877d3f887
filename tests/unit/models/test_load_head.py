"""The head alone gives the model's own logits, for every kind of head, or refuses."""

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    CohereConfig,
    FalconH1Config,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    PhiConfig,
    PreTrainedConfig,
)

from strop.errors import ModelError
from strop.models.head import LogitsHead
from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_model

TOKEN_IDS = torch.arange(12)[None] * 7 + 10
SIZES = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def _assert_head_is_exact(model: nn.Module) -> None:
    with torch.no_grad():
        hidden = model.base_model(TOKEN_IDS).last_hidden_state[0]
        torch.testing.assert_close(LogitsHead.from_model(model).logits(hidden), model(TOKEN_IDS).logits[0])


@pytest.mark.parametrize("family", FAMILIES + HYBRID_FAMILIES)
def test_the_head_of_each_tiny_family_gives_its_logits(family: str) -> None:
    _assert_head_is_exact(tiny_model(family, attn="eager"))


@pytest.mark.parametrize(
    "config",
    [
        CohereConfig(**SIZES, **HEADS, logit_scale=0.25, pad_token_id=0),
        Cohere2Config(**SIZES, **HEADS, logit_scale=0.25, pad_token_id=0),
        GraniteConfig(**SIZES, **HEADS, logits_scaling=8.0),
        FalconH1Config(**SIZES, **HEADS, lm_head_multiplier=0.5, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_state=8),
        Gemma2Config(**SIZES, **HEADS, head_dim=8, final_logit_softcapping=0.5),
        PhiConfig(**SIZES, **HEADS),
        GPT2Config(vocab_size=320, n_embd=32, n_layer=1, n_head=4),
    ],
    ids=lambda config: config.model_type,
)
def test_scales_softcaps_and_biases_of_other_families_are_followed(config: PreTrainedConfig) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    _assert_head_is_exact(model)


def test_the_head_holds_the_parameter_itself_and_passes_its_gradient() -> None:
    model = tiny_model("llama", attn="eager")
    head = LogitsHead.from_model(model)
    assert head.weight is model.get_input_embeddings().weight
    head.logits(torch.ones(2, 32)).sum().backward()
    assert model.get_input_embeddings().weight.grad.any()


def test_a_scale_of_an_unknown_family_is_refused_by_name() -> None:
    model = tiny_model("llama", attn="eager")
    model.config.logit_scale = 0.5
    with pytest.raises(ModelError, match=r"'llama'.*logit_scale = 0\.5"):
        LogitsHead.from_model(model)


def test_a_head_that_is_not_one_linear_layer_is_refused() -> None:
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, **HEADS))
    model.lm_head = nn.Sequential(nn.Linear(32, 320))
    with pytest.raises(ModelError, match="one linear layer, got Sequential"):
        LogitsHead.from_model(model)
