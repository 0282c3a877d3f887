"""A critic begins from the policy's model, from another one with its tokens, or from a critic of a checkpoint."""

from pathlib import Path

import pytest
import torch

from strop.config.critic import CriticConfig
from strop.config.model import LoraConfig, ModelConfig
from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.errors import CheckpointError, ModelError
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.critic_load import load_critic
from support.critic import critic_weights, set_head, value_plan, valued_groups
from support.tiny import tiny_folder, tiny_groups, tiny_model


def loaded(policy: Path, path: Path | None = None, lora: LoraConfig | None = None) -> Fsdp2Critic:
    section = ModelConfig(path=str(policy), lora=lora)
    config = CriticConfig(path=None if path is None else str(path))
    return load_critic(section, config, TrainingConfig(), device=CpuDevice(), seed=3)


def decoder_of(family: str, seed: int) -> dict[str, torch.Tensor]:
    return {f"decoder.{name}": weight for name, weight in tiny_model(family, seed).get_decoder().named_parameters()}


def holds(critic: Fsdp2Critic, expected: dict[str, torch.Tensor]) -> bool:
    found = critic_weights(critic)
    return all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_without_a_path_it_begins_from_the_policys_model(tmp_path: Path) -> None:
    critic = loaded(tiny_folder(tmp_path))
    assert holds(critic, decoder_of("llama", 0))
    assert not critic.values(value_plan(tiny_groups()))[0].any()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_with_a_path_it_begins_from_that_model(tmp_path: Path, family: str) -> None:
    policy, other = tiny_folder(tmp_path, "llama"), tiny_folder(tmp_path, family, seed=1)
    assert holds(loaded(policy, other), decoder_of(family, 1))


def test_a_model_with_other_tokens_is_refused(tmp_path: Path) -> None:
    policy, other = tiny_folder(tmp_path, "llama"), tiny_folder(tmp_path, "qwen3")
    file = other / "tokenizer.json"
    text = file.read_text(encoding="utf-8")
    assert '"<|im_end|>"' in text
    file.write_text(text.replace("<|im_end|>", "<|turn_end|>"), encoding="utf-8")
    for name in ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        if (other / name).is_file():
            text = (other / name).read_text(encoding="utf-8")
            (other / name).write_text(text.replace("<|im_end|>", "<|turn_end|>"), encoding="utf-8")
    with pytest.raises(ModelError, match=r"critic\.path must be a model with the policy's tokens.* 2 entries"):
        loaded(policy, other)


def test_a_recurrent_critic_beside_a_policy_that_shares_prefixes_is_refused(tmp_path: Path) -> None:
    attention, recurrent = tiny_folder(tmp_path, "llama"), tiny_folder(tmp_path, "qwen3_next")
    with pytest.raises(ModelError, match="rows can share a prefix"):
        loaded(attention, recurrent)
    critic = loaded(recurrent, attention)
    assert critic.values(value_plan(tiny_groups(), share_prefix=False))


def test_it_has_adapters_where_the_policy_has_them(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    critic = loaded(tiny_folder(tmp_path), lora=LoraConfig(rank=2))
    set_head(critic)
    critic.forward_backward(value_plan(valued_groups()))
    before = critic_weights(critic)
    assert critic.optimizer_step().applied
    after = critic_weights(critic)
    changed = {name for name in before if not torch.equal(after[name], before[name])}
    assert {"head.weight", "head.bias"} < changed
    assert all(".lora_" in name for name in changed - {"head.weight", "head.bias"})


def test_a_critic_of_a_checkpoint_comes_back_with_its_head_and_a_new_optimizer(tmp_path: Path) -> None:
    policy, saved = tiny_folder(tmp_path), tmp_path / "step-3" / "critic"
    first = loaded(policy)
    set_head(first)
    first.forward_backward(value_plan(valued_groups()))
    first.optimizer_step()
    saved.mkdir(parents=True)
    first.save(saved)
    second = loaded(policy, saved)
    assert holds(second, critic_weights(first))
    assert second.optimizer.state_tensors() == {}
    with pytest.raises(CheckpointError, match="must hold the parameters that are trained"):
        loaded(tiny_folder(tmp_path, "gemma3"), saved)
