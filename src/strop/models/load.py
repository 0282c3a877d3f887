"""Loads a policy: weights, tokenizer, stop tokens and limits, refusing whatever is incomplete.

Tokenizer and config load without the weights, so prompts can be counted before the model is there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from strop.config.model import ModelConfig
from strop.errors import ModelError
from strop.models.attention.interface import ATTENTION_NAME
from strop.models.attention.registry import register_attention
from strop.models.checkpoint_files import check_checkpoint_files
from strop.models.locate import locate
from strop.models.read import read_config, read_generation_config, read_tokenizer
from strop.models.stops import StopSet, find_stops

_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")


@dataclass(frozen=True)
class LoadedModel:
    """A policy that is ready to be trained or sampled from."""

    hf_model: PreTrainedModel
    """In evaluation mode, on the CPU, with the packed attention."""
    tokenizer: PreTrainedTokenizerBase
    stops: StopSet
    max_length: int
    """Prompt and completion tokens together."""
    folder: Path
    """The local folder that it was read from."""

    @property
    def eos_id(self) -> int | None:
        """The tokenizer's end of sequence."""
        return _one_id(self.tokenizer.eos_token_id)

    @property
    def bos_id(self) -> int | None:
        """The tokenizer's beginning of sequence."""
        return _one_id(self.tokenizer.bos_token_id)

    @property
    def pad_id(self) -> int | None:
        """The tokenizer's padding; nothing in strop pads, engines that need it may."""
        return _one_id(self.tokenizer.pad_token_id)


def load_policy(
    section: ModelConfig,
    user_stop_ids: Iterable[int] = (),
    *,
    attention: str = ATTENTION_NAME,
    dtype: torch.dtype | None = None,
) -> LoadedModel:
    """Loads the policy on the CPU, in `dtype` or the config's.

    Raises ModelError where the model is missing, incomplete, of a kind that cannot be trained, or does not
    fit its tokenizer. `attention` is the name of an attention implementation of transformers.
    """
    folder = locate(section, weights=False)
    config = read_config(folder, section)
    tokenizer = read_tokenizer(folder, section)
    stops = find_stops(tokenizer, read_generation_config(folder, config), user_stop_ids)
    length = max_length(section, config)
    folder = locate(section)
    check_checkpoint_files(folder)
    hf_model = _read_weights(folder, section, config, attention, dtype or getattr(torch, section.dtype))
    _check_vocabulary(hf_model, tokenizer)
    hf_model.train(False)
    return LoadedModel(hf_model, tokenizer, stops, length, folder)


def load_model_config(section: ModelConfig) -> PreTrainedConfig:
    """Reads the model's config, without its weights; refuses kinds of model that cannot be trained."""
    return read_config(locate(section, weights=False), section)


def load_generation_config(section: ModelConfig) -> GenerationConfig:
    """Reads the stop ids and sampling defaults that the model's makers gave it, without its weights."""
    folder = locate(section, weights=False)
    return read_generation_config(folder, read_config(folder, section))


def load_tokenizer(section: ModelConfig) -> PreTrainedTokenizerBase:
    """Reads the tokenizer, without the weights, with the config's chat template where it gives one."""
    return read_tokenizer(locate(section, weights=False), section)


def max_length(section: ModelConfig, config: PreTrainedConfig) -> int:
    """Returns the bound on prompt plus completion tokens: the config's own, lowered by `model.max_length`."""
    text_config = config.get_text_config().to_dict()
    own = next((int(text_config[key]) for key in _LENGTH_KEYS if text_config.get(key)), None)
    if own is None and section.max_length is None:
        raise ModelError(f"{section.path} does not say how long its sequences may be", "Set model.max_length.")
    if own is not None and section.max_length is not None and section.max_length > own:
        raise ModelError(f"model.max_length must be at most the model's own {own}, got {section.max_length}")
    return section.max_length or own or 0


def _read_weights(
    folder: Path, section: ModelConfig, config: PreTrainedConfig, attention: str, dtype: torch.dtype
) -> PreTrainedModel:
    register_attention()
    disable_progress_bar()  # type: ignore[no-untyped-call]  # reading a local folder takes seconds; downloads keep the bar of huggingface_hub
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=attention,
            trust_remote_code=section.trust_remote_code,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below with both shapes, then refused
        )
    except (SafetensorError, RuntimeError, ValueError, KeyError, OSError, ImportError) as error:
        raise ModelError(
            f"the weights of {section.path} cannot be loaded: {error}", f"Fetch the model in {folder} anew."
        ) from error
    hf_model: PreTrainedModel = loaded[0]
    check_report(section, folder, loaded[1])
    return hf_model


def check_report(section: ModelConfig, folder: Path, report: dict[str, Any]) -> None:
    """Refuses what transformers only warns about: missing weights would start from random numbers."""
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        names = sorted(map(str, report[kind]))
        if names:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise ModelError(
                f"the checkpoint of {section.path} must hold exactly the weights of the model, "
                f"got {kind.replace('_', ' ')}: {shown}",
                f"Check that {folder} holds the whole model, and that config.json belongs to its weights.",
            )


def _check_vocabulary(hf_model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    embeddings = hf_model.get_input_embeddings()
    rows = cast(torch.Tensor, embeddings.weight).shape[0]
    if len(tokenizer) > rows:
        raise ModelError(
            f"the tokenizer must have at most as many tokens as the model has embeddings ({rows}), "
            f"got {len(tokenizer)}",
            "Tokenizer and model belong to different models, or tokens were added without resizing the embeddings.",
        )


def _one_id(token_id: int | list[int] | None) -> int | None:
    return token_id[0] if isinstance(token_id, list) else token_id
