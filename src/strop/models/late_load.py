"""Builds a model without memory, so that it can be sharded before any weight is read.

    config --build_empty--> model on "meta" --shard--> --fill--> weights, each process only the rows that it holds

Rows are read from the safetensors files by transformers' own loader, which renames and packs what the checkpoint of
a family holds in another layout, ties what is tied, and works out buffers that no checkpoint has, such as rotary
frequencies. This is the only file that calls it piece by piece.
"""

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils.logging import disable_progress_bar

from strop.config.model import ModelConfig
from strop.errors import ModelError
from strop.models.attention.interface import ATTENTION_NAME
from strop.models.attention.registry import register_attention
from strop.models.checkpoint_files import check_checkpoint_files, weight_files
from strop.models.load import check_report
from strop.models.locate import locate
from strop.models.lora import attach_adapters, draw_adapters, has_adapters, without_adapters
from strop.models.read import read_config, read_generation_config


def build_empty(section: ModelConfig, *, attention: str = ATTENTION_NAME) -> PreTrainedModel:
    """Returns the model that `load_policy` would load, with adapters where the section has them, without its weights.

    Raises ModelError as `load_policy` and `attach_adapters` do.
    """
    folder = locate(section, weights=False)
    config = read_config(folder, section)
    register_attention()
    with torch.device("meta"):
        hf_model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config,
            dtype=getattr(torch, section.dtype),
            attn_implementation=attention,
            trust_remote_code=section.trust_remote_code,
        )  # type: ignore[no-untyped-call]
        if section.lora is not None:
            attach_adapters(hf_model, section.lora)
    hf_model.generation_config = read_generation_config(folder, config)
    hf_model.train(False)
    return hf_model


def fill(hf_model: PreTrainedModel, section: ModelConfig, device: torch.device, seed: int = 0) -> None:
    """Reads the weights of a model from `build_empty`, sharded or not, onto a device; adapters start from `seed`.

    Replaces the model's parameters. Raises ModelError where the checkpoint is incomplete, does not fit, or is not in
    safetensors files.
    """
    folder = locate(section)
    check_checkpoint_files(folder)
    files = weight_files(folder)
    others = [file.name for file in files if file.suffix != ".safetensors"]
    if others:
        raise ModelError(
            f"a model that is loaded in parts must be in safetensors files, got {', '.join(others)}",
            "Save it anew with `save_pretrained` of transformers.",
        )
    is_trained = {name: weight.requires_grad for name, weight in hf_model.named_parameters()}
    with without_adapters(hf_model) if has_adapters(hf_model) else nullcontext():
        report = _read(hf_model, files, device)
    check_report(section, folder, report)
    _make_room(hf_model, device)
    draw_adapters(hf_model, seed)
    for name, weight in hf_model.named_parameters():
        weight.requires_grad_(is_trained[name])


def _read(hf_model: PreTrainedModel, files: list[Path], device: torch.device) -> dict[str, Any]:
    """Returns what transformers says of names that are missing or too many."""
    model: Any = hf_model
    mapping: Any = get_model_conversion_mapping(hf_model)
    settings = LoadStateDictConfig(
        ignore_mismatched_sizes=True,  # reported, then refused
        device_map={"": device},
        dtype=hf_model.dtype,
        dtype_plan=model._get_dtype_plan(hf_model.dtype),
        weight_mapping=mapping,
    )
    disable_progress_bar()  # type: ignore[no-untyped-call]
    with ExitStack() as stack:
        opened = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        slices = {name: part.get_slice(name) for part in opened for name in part.keys()}  # noqa: SIM118
        info, _ = convert_and_load_state_dict_in_model(hf_model, slices, settings)
    found: dict[str, Any] = model._finalize_model_loading(hf_model, settings, info).to_dict()
    return found


def _make_room(hf_model: PreTrainedModel, device: torch.device) -> None:
    """Gives memory to the weights that no checkpoint holds: those of adapters."""
    for name, weight in list(hf_model.named_parameters()):
        if weight.is_meta:
            path, _, leaf = name.rpartition(".")
            setattr(hf_model.get_submodule(path), leaf, nn.Parameter(torch.empty_like(weight, device=device)))
