"""Fused layers give what the model's own layers give, and stand only where they do."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    GlmConfig,
    Ministral3Config,
    MinistralConfig,
    Olmo2Config,
    PreTrainedConfig,
    PreTrainedModel,
    SmolLM3Config,
)

from strop.config.model import LoraConfig
from strop.models.attention import LAYOUT_KEYWORD, TreeLayout, register_attention
from strop.models.fused import fuse_layers
from strop.models.fused.attention import FusedAttention
from strop.models.fused.norm import FusedRMSNorm
from strop.models.fused.rotary import rotate
from strop.models.lora import attach_adapters
from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_config, tiny_model

NUM_TOKENS = 40


def hidden_and_gradients(model: PreTrainedModel) -> tuple[Tensor, dict[str, Tensor]]:
    """Runs random tokens as two sequences, and the gradient of a fixed mix of the hidden states."""
    token_ids = torch.randint(8, 60, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(3))
    layout = TreeLayout.from_lengths([NUM_TOKENS // 2] * 2)
    decoder = model.get_decoder()
    hidden = decoder(
        token_ids, position_ids=layout.ordinals()[None], use_cache=False, **{LAYOUT_KEYWORD: layout}
    ).last_hidden_state
    model.zero_grad()
    (hidden * torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)).sum().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return hidden.detach(), gradients


def relative(got: Tensor, wanted: Tensor) -> float:
    """|got - wanted| / |wanted|."""
    return float((got - wanted).norm() / wanted.norm().clamp_min(1e-30))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_norm_and_attention_layer_of_a_plain_decoder_is_replaced(family: str) -> None:
    model = tiny_model(family)
    norms = [name for name, module in model.named_modules() if type(module).__name__.endswith("RMSNorm")]
    attentions = [name for name, module in model.named_modules() if type(module).__name__.endswith("Attention")]
    counts = fuse_layers(model)
    assert sum(counts.values()) == len(norms) + len(attentions)
    assert all(isinstance(model.get_submodule(name), FusedRMSNorm) for name in norms)
    assert all(isinstance(model.get_submodule(name), FusedAttention) for name in attentions)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_layers_give_the_same_hidden_states_and_gradients(family: str, dtype: torch.dtype) -> None:
    if family == "qwen3_moe" and dtype == torch.float64:
        pytest.skip("grouped products have no float64")
    plain = tiny_model(family, dtype=dtype)
    fused = copy.deepcopy(plain)
    assert fuse_layers(fused)
    hidden, gradients = hidden_and_gradients(plain)
    fused_hidden, fused_gradients = hidden_and_gradients(fused)
    assert relative(fused_hidden, hidden) < 2e-6
    assert fused_gradients.keys() == gradients.keys()
    differences = {name: relative(fused_gradients[name], gradient) for name, gradient in gradients.items()}
    assert max(differences.values()) < 1e-5, differences


def test_parameters_keep_their_names_their_storage_and_their_ties() -> None:
    model = tiny_model("qwen3")
    before = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    fuse_layers(model)
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == before


def test_a_copy_of_a_fused_model_has_weights_of_its_own() -> None:
    model = tiny_model("llama")
    fuse_layers(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.norm.weight.fill_(7.0)
    assert not torch.equal(model.model.norm.weight, other.model.norm.weight)


def test_adapters_attach_to_fused_attention_and_receive_gradients() -> None:
    model = tiny_model("llama")
    fuse_layers(model)
    attach_adapters(model, LoraConfig(rank=2, target_modules=["q_proj", "v_proj"]), seed=0)
    _, gradients = hidden_and_gradients(model)
    assert {name.split(".")[-4] for name in gradients} == {"q_proj", "v_proj"}


def test_a_model_in_bfloat16_keeps_its_layers() -> None:
    assert fuse_layers(tiny_model("llama", dtype=torch.bfloat16)) == {}


def tiny_other(config_class: type[PreTrainedConfig], **options: object) -> PreTrainedModel:
    """A tiny model of a family whose attention differs from the common one."""
    register_attention()
    common = tiny_config("llama").to_dict()
    kept = ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings", "num_attention_heads")
    kept += ("num_key_value_heads", "head_dim", "intermediate_size", "pad_token_id", "bos_token_id", "eos_token_id")
    config = config_class(**{**{name: common[name] for name in kept}, **options})
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="strop").eval()


@pytest.mark.parametrize(
    ("config_class", "options", "kept"),
    [
        (CohereConfig, {}, "CohereAttention"),  # neighbours, not halves, are turned against each other
        (GlmConfig, {"partial_rotary_factor": 0.5}, "GlmAttention"),  # half of each head is not turned
        (Olmo2Config, {}, "Olmo2Attention"),  # the norm spans all heads
    ],
)
def test_attention_that_differs_from_the_common_one_keeps_its_original(
    config_class: type[PreTrainedConfig], options: dict[str, object], kept: str
) -> None:
    model = tiny_other(config_class, **options)
    assert kept not in fuse_layers(model)
    assert kept in {type(module).__name__ for module in model.modules()}


def test_layers_without_positions_keep_their_original_beside_replaced_ones() -> None:
    model = tiny_other(SmolLM3Config, no_rope_layers=[1, 0])
    assert fuse_layers(model)["SmolLM3Attention"] == 1
    assert isinstance(model.model.layers[0].self_attn, FusedAttention)
    assert not isinstance(model.model.layers[1].self_attn, FusedAttention)


def test_a_model_of_windows_is_replaced_and_keeps_its_window() -> None:
    model = tiny_other(MinistralConfig, sliding_window=5, layer_types=["sliding_attention", "full_attention"])
    plain = copy.deepcopy(model)
    assert fuse_layers(model)["MinistralAttention"] == 2
    assert relative(hidden_and_gradients(model)[0], hidden_and_gradients(plain)[0]) < 2e-6


def test_attention_that_scales_far_positions_keeps_its_original() -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0, "original_max_position_embeddings": 64}
    model = tiny_other(Ministral3Config, rope_parameters={**rope, "llama_4_scaling_beta": 0.1})
    assert "Ministral3Attention" not in fuse_layers(model)


@pytest.mark.parametrize("family", HYBRID_FAMILIES)
def test_a_model_with_layers_that_carry_a_state_keeps_its_layers(family: str) -> None:
    assert fuse_layers(tiny_model(family)) == {}


class _LouderNorm(nn.Module):
    """Looks like a norm from outside, and gives twice as much."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.weight = norm.weight
        self.eps = norm.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


def test_a_norm_with_other_numbers_keeps_its_original() -> None:
    model = tiny_model("llama")
    model.model.norm = _LouderNorm(model.model.norm)
    fuse_layers(model)
    assert isinstance(model.model.norm, _LouderNorm)


def test_a_fused_attention_layer_refuses_a_cache_of_transformers() -> None:
    model = tiny_model("llama")
    fuse_layers(model)
    layout = TreeLayout.from_lengths([4])
    with pytest.raises(ValueError, match="without a cache"):
        model(torch.full((1, 4), 9), position_ids=torch.arange(4)[None], use_cache=True, **{LAYOUT_KEYWORD: layout})


def test_the_gradients_of_norm_and_rotation_equal_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 2, 8, dtype=torch.float64, generator=generator, requires_grad=True)
    norm = FusedRMSNorm(nn.Parameter(torch.randn(8, dtype=torch.float64, generator=generator)), 1e-3, 1.0)
    angles = torch.randn(3, 1, 8, dtype=torch.float64, generator=generator)

    def normalised(x: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(norm, {"weight": weight}, x)

    assert torch.autograd.gradcheck(normalised, (x, norm.weight))
    assert torch.autograd.gradcheck(lambda x: rotate(x, angles.cos(), angles.sin()), (x,))
