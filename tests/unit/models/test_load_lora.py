"""Adapters are attached, merged, disabled and saved without touching the base weights."""

import sys
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedModel

from strop.config.model import LoraConfig, ModelConfig
from strop.errors import ModelError
from strop.models.lora import (
    adapters_disabled,
    attach_adapters,
    check_adapters,
    has_adapters,
    merged_weights,
    save_adapter,
)
from support.tiny import tiny_folder, tiny_model

TOKEN_IDS = torch.arange(20)[None] * 7 + 10
SECTION = LoraConfig(rank=4, alpha=8.0)


def _logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKEN_IDS).logits


def _adapted(family: str = "qwen2", section: LoraConfig = SECTION) -> PreTrainedModel:
    """A model whose adapters were trained: B is not zero."""
    model = tiny_model(family, attn="eager")
    attach_adapters(model, section)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return model


def test_fresh_adapters_change_nothing_and_repeat_for_a_seed() -> None:
    base, first, again = (tiny_model("llama", attn="eager") for _ in range(3))
    attach_adapters(first, SECTION, seed=5)
    attach_adapters(again, SECTION, seed=5)
    torch.testing.assert_close(_logits(first), _logits(base), rtol=0, atol=0)
    for (name, weight), other in zip(first.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(weight, other), name


def test_only_adapters_are_trained_and_every_linear_layer_but_the_head_has_one() -> None:
    model = _adapted()
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert all(".lora_" in name for name in trained)
    assert len(trained) == 2 * 7 * 2
    assert not any("lm_head" in name for name in trained)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "qwen3_moe"])
def test_merged_weights_give_the_adapted_logits_under_the_base_names(family: str) -> None:
    adapted, base = _adapted(family), tiny_model(family, attn="eager")
    before = {name: weight.clone() for name, weight in adapted.named_parameters()}
    assert (_logits(adapted) - _logits(base)).abs().max() > 0.1
    merged = dict(merged_weights(adapted))
    assert list(merged) == [name for name, _ in base.named_parameters()]
    base.load_state_dict(merged, strict=False)
    torch.testing.assert_close(_logits(base), _logits(adapted), rtol=1e-4, atol=1e-5)
    for name, weight in adapted.named_parameters():
        assert torch.equal(weight, before[name]), name


def test_a_model_without_adapters_streams_its_own_weights() -> None:
    model = tiny_model("llama", attn="eager")
    assert not has_adapters(model)
    for name, tensor in merged_weights(model):
        assert tensor.data_ptr() == model.get_parameter(name).data_ptr()


def test_disabled_adapters_give_the_base_model_and_come_back() -> None:
    adapted, base = _adapted(), tiny_model("qwen2", attn="eager")
    expected = _logits(adapted)
    trained = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    with adapters_disabled(adapted):
        torch.testing.assert_close(_logits(adapted), _logits(base), rtol=0, atol=0)
    torch.testing.assert_close(_logits(adapted), expected, rtol=0, atol=0)
    assert trained == [name for name, weight in adapted.named_parameters() if weight.requires_grad]


def test_a_saved_adapter_loads_in_plain_peft(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, "qwen2")
    adapted = _adapted("qwen2")
    save_adapter(adapted, SECTION, str(folder), tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter")
    torch.testing.assert_close(_logits(loaded), _logits(adapted), rtol=1e-4, atol=1e-5)


def test_the_saved_adapter_of_a_mixture_of_experts_loads_in_plain_peft(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, "qwen3_moe")
    adapted = _adapted("qwen3_moe")
    assert not any("experts" in name for name, weight in adapted.named_parameters() if weight.requires_grad)
    save_adapter(adapted, SECTION, str(folder), tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter")
    torch.testing.assert_close(_logits(loaded), _logits(adapted), rtol=1e-4, atol=1e-5)


def test_a_family_in_which_a_layer_cannot_have_an_adapter_is_refused_without_weights() -> None:
    with pytest.raises(ModelError, match=r"(?s)out_proj.*Leave it out of model\.lora\.target_modules"):
        check_targets("mamba", ["in_proj", "out_proj"])
    check_targets("mamba", ["in_proj", "x_proj"])


@pytest.mark.parametrize(("target", "remedy"), [("q_prj", "q_proj"), ("lm_head", "q_proj"), ("nothing", "q_proj")])
def test_a_target_that_is_no_linear_layer_is_refused(target: str, remedy: str) -> None:
    with pytest.raises(ModelError, match=remedy) as caught:
        attach_adapters(tiny_model("llama", attn="eager"), LoraConfig(target_modules=["v_proj", target]))
    assert target in str(caught.value)


def check_targets(family: str, targets: list[str]) -> None:
    section = ModelConfig(path="never-loaded", lora=LoraConfig(target_modules=targets))
    check_adapters(section, tiny_model(family, attn="eager").config)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_targets_are_checked_without_weights(family: str) -> None:
    check_targets(family, ["q_proj", "self_attn.o_proj"])
    for target in ("q_prj", "lm_head"):
        with pytest.raises(ModelError, match="q_proj") as caught:
            check_targets(family, ["v_proj", target])
        assert target in str(caught.value)


def test_adapters_without_peft_are_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelError, match=r"pip install 'strop\[lora\]'"):
        check_targets("llama", ["q_proj"])
