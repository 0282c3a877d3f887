"""Saves and restores the training state of a policy or a critic, bit-equal: one safetensors file a kind of tensor.

parameters.safetensors  what is trained      engine.json  counts
exp_avg.safetensors, exp_avg_sq.safetensors, step.safetensors, master.safetensors where there are masters
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from strop.errors import CheckpointError
from strop.training.fsdp2.optimizer import ParameterOptimizer
from strop.training.fsdp2.sharding import full_tensor

_COUNTS_FILE = "engine.json"
_PARAMETERS = "parameters"


def save_state(folder: Path, optimizer: ParameterOptimizer, counts: Mapping[str, Any]) -> None:
    """Writes everything into an existing folder; every process must call this, the first one writes."""
    kinds: dict[str, Mapping[str, Tensor]] = {_PARAMETERS: optimizer.parameters, **optimizer.state_tensors()}
    for kind, tensors in kinds.items():
        full = {name: full_tensor(tensor.detach()).contiguous() for name, tensor in tensors.items()}
        if _is_first_process():
            save_file(full, folder / f"{kind}.safetensors")
    if _is_first_process():
        document = {"kinds": sorted(kinds), **counts}
        (folder / _COUNTS_FILE).write_text(json.dumps(document, indent=2), encoding="utf-8")
    if dist.is_initialized():
        dist.barrier()


def load_state(folder: Path, optimizer: ParameterOptimizer) -> dict[str, Any]:
    """Restores what `save_state` wrote and returns the counts. Raises CheckpointError where it does not fit."""
    document: dict[str, Any] = json.loads((folder / _COUNTS_FILE).read_text(encoding="utf-8"))
    kinds = [kind for kind in document.pop("kinds") if kind != _PARAMETERS]
    load_parameters(folder, optimizer)
    state = {kind: load_file(folder / f"{kind}.safetensors") for kind in kinds}
    optimizer.load_state_tensors(
        {
            kind: {name: _placed_like(optimizer.parameters[name], value) for name, value in values.items()}
            for kind, values in state.items()
        }
    )
    return document


def load_parameters(folder: Path, optimizer: ParameterOptimizer) -> None:
    """Takes the parameters alone of what `save_state` wrote. Raises CheckpointError where they do not fit."""
    saved = load_file(folder / f"{_PARAMETERS}.safetensors")
    _check_names(folder, saved, optimizer.parameters)
    with torch.no_grad():
        for name, value in saved.items():
            parameter = optimizer.parameters[name]
            parameter.copy_(_placed_like(parameter, value))
            optimizer.masters[name].copy_(parameter)


def holds_state(folder: Path) -> bool:
    """Whether a folder is what `save_state` wrote."""
    return (folder / _COUNTS_FILE).is_file() and (folder / f"{_PARAMETERS}.safetensors").is_file()


def _placed_like(parameter: Tensor, value: Tensor) -> Tensor:
    """Moves a full tensor to where the parameter lives, sharded as it is; step counts are never sharded."""
    if not isinstance(parameter, DTensor):
        # A loaded tensor may be a map of the file, which must not outlive the checkpoint.
        return value.to(parameter.device, copy=True)
    if value.ndim == 0:
        return value
    return distribute_tensor(
        value.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )


def _check_names(folder: Path, saved: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> None:
    if saved.keys() != trained.keys():
        missing, unknown = sorted(trained.keys() - saved.keys()), sorted(saved.keys() - trained.keys())
        raise CheckpointError(
            f"{folder} must hold the parameters that are trained; missing {missing[:3]} ({len(missing)}), "
            f"unknown {unknown[:3]} ({len(unknown)})",
            "resume with the model and adapters that the checkpoint was written with",
        )
    for name, value in saved.items():
        if value.shape != trained[name].shape:
            raise CheckpointError(f"{name} must have shape {tuple(trained[name].shape)}, got {tuple(value.shape)}")


def _is_first_process() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0
