"""Loads a critic: from the policy's model, from another one, or from a critic that a checkpoint holds.

model section (with critic.path) --> causal language model --> adapters as the policy has --> Fsdp2Critic
                                                   critic.path is a checkpoint's part --> its parameters
"""

from pathlib import Path

from transformers import PreTrainedModel

from strop.config.critic import CriticConfig
from strop.config.model import ModelConfig
from strop.config.training import TrainingConfig
from strop.errors import ModelError
from strop.models.attention.layer_kinds import supports_shared_prefix
from strop.models.attention.self_check import check_packed_attention
from strop.models.fused import fuse_layers
from strop.models.load import load_model_config, load_policy, load_tokenizer
from strop.models.lora import attach_adapters
from strop.protocols import Device
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.state import holds_state


def load_critic(
    model: ModelConfig, config: CriticConfig, training: TrainingConfig, *, device: Device, seed: int
) -> Fsdp2Critic:
    """Loads and checks the critic's model as the policy's is, with adapters where the policy has them.

    Args:
        model: the policy's section.
        config: the critic's section.
        training: the training section.
        device: where the critic is trained.
        seed: of the adapters.

    Raises:
        ModelError: where the model is incomplete, has another tokenizer than the policy, or cannot read what is
            packed for the policy.
        CheckpointError: where `critic.path` holds the critic of another model.
    """
    saved = _saved_critic(config)
    section = model if config.path is None or saved is not None else _section_of(config.path, model)
    if section is not model:
        _require_same_tokens(section, model)
    critic = Fsdp2Critic(_read(section, model, seed), config, training, device=device)
    if saved is not None:
        critic.begin_from(saved)
    return critic


def _saved_critic(config: CriticConfig) -> Path | None:
    folder = None if config.path is None else Path(config.path).expanduser()
    return folder if folder is not None and holds_state(folder) else None


def _section_of(path: str, model: ModelConfig) -> ModelConfig:
    return model.model_copy(update={"path": path, "revision": None, "gguf_file": None})


def _read(section: ModelConfig, model: ModelConfig, seed: int) -> PreTrainedModel:
    hf_model = load_policy(section).hf_model
    check_packed_attention(hf_model)
    fuse_layers(hf_model)
    if model.lora is not None:
        attach_adapters(hf_model, model.lora, seed)
    return hf_model


def _require_same_tokens(section: ModelConfig, model: ModelConfig) -> None:
    """The critic reads the policy's token ids, in the batches that are packed for the policy."""
    ours, theirs = load_tokenizer(section).get_vocab(), load_tokenizer(model).get_vocab()
    if ours != theirs:
        raise ModelError(
            f"critic.path must be a model with the policy's tokens, got {section.path}, whose tokenizer has "
            f"{len(ours.items() ^ theirs.items())} entries of its own or of the policy's alone",
            f"Take a model of the family of {model.path}, or leave critic.path out.",
        )
    if supports_shared_prefix(load_model_config(model)) and not supports_shared_prefix(load_model_config(section)):
        raise ModelError(
            f"critic.path must be a model whose rows can share a prefix, as the policy's do, got {section.path}",
            "Take a model without recurrent layers, or leave critic.path out.",
        )
