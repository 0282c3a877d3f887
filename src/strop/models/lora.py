"""Low-rank adapters through PEFT: attached in place, merged only in the stream that leaves.

The model keeps its class and its forward; its linear layers become PEFT layers that hold the frozen weight as
`base_layer` and train two small matrices A [R, in] and B [out, R]. Reference: Hu et al., 2021, arXiv 2106.09685.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from strop.config.model import LoraConfig, ModelConfig
from strop.errors import ModelError
from strop.models.weights import named_weights
from strop.records import WeightChunk

if TYPE_CHECKING:
    from peft import LoraConfig as PeftLoraConfig

ADAPTER_NAME = "default"

_BASE_INFIX = ".base_layer."
_LORA_INFIX = ".lora_"
_CHECKPOINT_PREFIX = "base_model.model."

Gather = Callable[[torch.Tensor], torch.Tensor]


def check_adapters(section: ModelConfig, config: PreTrainedConfig) -> None:
    """Refuses adapters that cannot be attached, before any weight is loaded: the model is built without memory.

    Raises ModelError where PEFT is not installed, and where `attach_adapters` does.
    """
    if section.lora is None:
        return
    if find_spec("peft") is None:
        raise ModelError(
            "model.lora needs the package peft, and that is not installed",
            "Run `pip install 'strop[lora]'`, or leave model.lora out.",
        )
    with torch.device("meta"):
        hf_model = AutoModelForCausalLM.from_config(config, trust_remote_code=section.trust_remote_code)  # type: ignore[no-untyped-call]
        attach_adapters(hf_model, section.lora)


def attach_adapters(hf_model: PreTrainedModel, section: LoraConfig, seed: int = 0) -> None:
    """Puts adapters into the model and freezes everything else. A starts random from `seed`, B zero.

    Raises ModelError where a target module does not exist, is the head, or cannot have an adapter in this family.
    """
    from peft import inject_adapter_in_model

    targets = _targets(hf_model, section)
    with torch.random.fork_rng(devices=[]):
        try:
            inject_adapter_in_model(_peft_config(section, targets), hf_model, ADAPTER_NAME)
        except ValueError as error:
            raise ModelError(
                f"every target of model.lora must be a layer that can have an adapter, got one in "
                f"{hf_model.config.model_type} that cannot: {error}",
                f"Leave it out of model.lora.target_modules; the targets were: {', '.join(targets)}.",
            ) from error
    for name, weight in hf_model.named_parameters():
        weight.requires_grad_(_LORA_INFIX in name)
        if _LORA_INFIX in name and weight.is_meta:  # PEFT leaves these as they are
            weight.data = weight.data.to(hf_model.dtype)
    draw_adapters(hf_model, seed)


@torch.no_grad()
def draw_adapters(hf_model: PreTrainedModel, seed: int) -> None:
    """Starts A uniform within 1 / sqrt(in), as a linear layer, and B zero; weights without memory are left out.

    Every matrix has a stream of its own, so that the values do not depend on the order or on who holds which part.
    """
    for name, weight in hf_model.named_parameters():
        if _LORA_INFIX not in name or weight.is_meta:
            continue
        if f"{_LORA_INFIX}A." in name:
            generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            bound = weight.shape[-1] ** -0.5
            drawn = torch.empty(weight.shape).uniform_(-bound, bound, generator=generator)
            weight.copy_(_placed_as(weight, drawn.to(weight.device, weight.dtype)))
        else:
            weight.zero_()


def _placed_as(weight: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Returns the part of a whole tensor that this process holds of a sharded weight."""
    if not isinstance(weight, DTensor):
        return whole
    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None)


@contextmanager
def without_adapters(hf_model: PreTrainedModel) -> Iterator[None]:
    """Gives every weight its base name within the block: adapted layers are what they were before."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted: dict[str, tuple[nn.Module, nn.Module]] = {
        name: (cast(nn.Module, module), module.get_base_layer())
        for name, module in hf_model.named_modules()
        if isinstance(module, BaseTunerLayer)
    }
    for name, (_, base) in adapted.items():
        hf_model.set_submodule(name, base)
    try:
        yield
    finally:
        for name, (layer, _) in adapted.items():
            hf_model.set_submodule(name, layer)


def has_adapters(model: nn.Module) -> bool:
    """Whether adapters were attached to the model."""
    return any(_LORA_INFIX in name for name, _ in model.named_parameters())


@contextmanager
def adapters_disabled(model: nn.Module) -> Iterator[None]:
    """Makes the model its own frozen base within the block: the reference model of a run with adapters."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged_weights(model: nn.Module, gather: Gather = torch.Tensor.detach) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every weight under its base name, W + scale * B @ A computed one tensor at a time.

    The trained model is not changed, and a model without adapters yields its own weights. `gather` makes a
    whole tensor of a sharded one.
    """
    for name, weight in named_weights(model):
        if _LORA_INFIX in name:
            continue
        path, infix, leaf = name.rpartition(_BASE_INFIX)
        if not infix:
            yield name, gather(weight)
        elif leaf == "weight":
            yield f"{path}.{leaf}", gather(weight) + _delta(model.get_submodule(path), gather).to(weight.dtype)
        else:
            yield f"{path}.{leaf}", gather(weight)


def merged_chunks(model: nn.Module, version: int, gather: Gather = torch.Tensor.detach) -> Iterator[WeightChunk]:
    """Yields `merged_weights` as chunks of one version."""
    for name, tensor in merged_weights(model, gather):
        yield WeightChunk(name, tensor, version)


def save_adapter(model: nn.Module, section: LoraConfig, base_model: str, folder: Path) -> None:
    """Writes the adapters as PEFT does, so that `PeftModel.from_pretrained(base, folder)` loads them."""
    config = _peft_config(section, _adapted_names(model, section))
    config.base_model_name_or_path = base_model
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(str(folder))
    weights = {
        _CHECKPOINT_PREFIX + name.replace(f".{ADAPTER_NAME}.", "."): weight.cpu().contiguous()
        for name, weight in named_weights(model)
        if _LORA_INFIX in name
    }
    if not weights:
        raise ModelError("an adapter can only be saved from a model that has one, got a model without")
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _delta(layer: nn.Module, gather: Gather) -> torch.Tensor:
    """Returns what the adapter adds to a layer's weight, in float32, in the layout of that weight."""
    matrix_a = gather(cast(torch.Tensor, layer.get_submodule(f"lora_A.{ADAPTER_NAME}").weight)).float()
    matrix_b = gather(cast(torch.Tensor, layer.get_submodule(f"lora_B.{ADAPTER_NAME}").weight)).float()
    scaling = cast(dict[str, float], layer.scaling)[ADAPTER_NAME]
    delta = scaling * (matrix_b @ matrix_a)
    return delta.T if layer.fan_in_fan_out else delta


def _adapted_names(model: nn.Module, section: LoraConfig) -> list[str]:
    if not isinstance(section.target_modules, str):
        return section.target_modules
    layers = {name.rpartition(_LORA_INFIX)[0] for name, _ in model.named_parameters() if _LORA_INFIX in name}
    return sorted({layer.rpartition(".")[2] for layer in layers})


def _peft_config(section: LoraConfig, targets: list[str]) -> "PeftLoraConfig":
    from peft import LoraConfig as PeftLoraConfig

    return PeftLoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,  # type: ignore[arg-type]
        target_modules=targets,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )


def _targets(hf_model: PreTrainedModel, section: LoraConfig) -> list[str]:
    """Returns the last names of the layers to adapt.

    For "all-linear" these are the linear layers alone: PEFT's own word takes packed experts too, which are no layers.
    Refuses names that match nothing, which PEFT lets pass as long as another name matches.
    """
    linear = {name.rpartition(".")[2] for name, module in hf_model.named_modules() if isinstance(module, nn.Linear)}
    head = hf_model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linear -= {name.rpartition(".")[2] for name, module in hf_model.named_modules() if module is head}
    if isinstance(section.target_modules, str):
        return sorted(linear)
    for target in section.target_modules:
        if target.rpartition(".")[2] not in linear:
            near = get_close_matches(target, sorted(linear), n=1) or sorted(linear)
            raise ModelError(
                f"model.lora.target_modules must name linear layers other than the head, got {target!r}",
                f"Did you mean {', '.join(near)}?",
            )
    return section.target_modules
