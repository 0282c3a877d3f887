"""Finds and checks a reward model without its weights, and loads them later.

Most of what can be wrong is known from config.json: a language model would get a head of random numbers, a classifier
of several labels has no one score. What only the weights can tell is refused when they are loaded.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from strop.config.judges import RewardModelConfig
from strop.config.model import ModelConfig
from strop.errors import ModelError, nearest_hint
from strop.models.checkpoint_files import check_checkpoint_files
from strop.models.locate import locate

_KIND = "ForSequenceClassification"
_LENGTH_KEYS = ("max_position_embeddings", "n_positions")
_FAILURES = (SafetensorError, RuntimeError, ValueError, KeyError, TypeError, OSError, ImportError, AttributeError)
"""What transformers raises for files that it cannot read."""


@dataclass(frozen=True)
class FoundModel:
    """A reward model whose weights are still on disk."""

    folder: Path
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    output: int
    """Which of its outputs is the score."""
    max_tokens: int | None
    """The longest conversation; None where nothing bounds it."""


def find_model(section: RewardModelConfig) -> FoundModel:
    """Finds the model's folder, on the hub if need be, and checks everything but the weights' values.

    Raises ModelError where it is missing, incomplete, no sequence classification model, an encoder-decoder, or has
    several labels of which none is named.
    """
    folder = locate(ModelConfig(path=section.path, revision=section.revision))
    check_checkpoint_files(folder)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder)
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    except _FAILURES as error:
        raise ModelError(f"config and tokenizer of {section.path} cannot be read: {error}") from error
    _check_kind(section, config)
    return FoundModel(folder, config, tokenizer, _output(section, config), _max_tokens(config, tokenizer))


def load_weights(section: RewardModelConfig, found: FoundModel, device: torch.device) -> PreTrainedModel:
    """Loads the model in evaluation mode; raises ModelError where the checkpoint lacks weights of it."""
    try:
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(
            found.folder, config=found.config, dtype=getattr(torch, section.dtype), output_loading_info=True
        )
    except _FAILURES as error:
        raise ModelError(f"the weights of {section.path} cannot be loaded: {error}") from error
    model: PreTrainedModel = loaded[0]
    missing = sorted(map(str, loaded[1]["missing_keys"]))
    if missing:
        raise ModelError(
            f"the checkpoint of {section.path} must hold every weight of the reward model, its head too, got none "
            f"for {', '.join(missing[:5])}",
            "Take a model that was trained as a reward model: missing weights would be random.",
        )
    model.config.get_text_config().use_cache = False
    torch.nn.Module.to(model, device=device)
    model.train(False)
    return model.requires_grad_(False)


def _check_kind(section: RewardModelConfig, config: PreTrainedConfig) -> None:
    architectures = config.architectures or []
    if not any(name.endswith(_KIND) for name in architectures):
        raise ModelError(
            f"the reward model {section.path} must be a sequence classification model (architectures in config.json "
            f"end with {_KIND}), got {', '.join(architectures) or 'none'}",
            "A language model judges by a rubric: give the reward a `judge` instead of a `model`.",
        )
    if config.is_encoder_decoder:
        raise ModelError(f"the reward model {section.path} must be an encoder or a decoder, got an encoder-decoder")


def _output(section: RewardModelConfig, config: PreTrainedConfig) -> int:
    """Which output is the score."""
    names = {str(name): int(place) for place, name in (config.id2label or {}).items()}
    if section.label is None:
        if config.num_labels == 1:
            return 0
        raise ModelError(
            f"the reward model {section.path} has {config.num_labels} labels ({', '.join(names)}), and one must be "
            "named",
            "Set rewards.model.label to that whose logit is the reward.",
        )
    if section.label not in names:
        raise ModelError(
            f"rewards.model.label must be a label of {section.path} ({', '.join(names)}), got {section.label!r}"
            f"{nearest_hint(section.label, names)}"
        )
    return names[section.label]


def _max_tokens(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The smaller of the bounds of model and tokenizer; a tokenizer without one says an astronomic number."""
    text_config = config.get_text_config().to_dict()
    bounds = [int(text_config[key]) for key in _LENGTH_KEYS if text_config.get(key)]
    if tokenizer.model_max_length < 2**40:
        bounds.append(int(tokenizer.model_max_length))
    return min(bounds, default=None)
