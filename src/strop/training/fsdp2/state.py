"""Saves and restores the training state of a policy or a critic, bit-equal: safetensors, by kind of tensor.

    engine.json  counts, and the kinds: parameters (what is trained), exp_avg, exp_avg_sq, step, master (of bfloat16)

    one process    <kind>.safetensors                  whole tensors
    many           <kind>/shard-<rank>-....safetensors what each process holds, written by torch.distributed.checkpoint

Any number of processes reads both: each takes the slices that it will hold, and no process holds a whole copy.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from strop.errors import CheckpointError
from strop.training.fsdp2.optimizer import ParameterOptimizer
from strop.training.fsdp2.sharding import num_processes

_COUNTS_FILE = "engine.json"
_PARAMETERS = "parameters"


def save_state(folder: Path, optimizer: ParameterOptimizer, counts: Mapping[str, Any]) -> None:
    """Writes everything into an existing folder; every process must call this, and writes what it holds.

    Raises CheckpointError, in all processes, where one cannot write.
    """
    kinds: dict[str, Mapping[str, Tensor]] = {_PARAMETERS: optimizer.parameters, **optimizer.state_tensors()}
    for kind, tensors in kinds.items():
        held = {name: tensor.detach() for name, tensor in tensors.items()}
        if num_processes() == 1:
            save_file({name: tensor.contiguous() for name, tensor in held.items()}, folder / f"{kind}.safetensors")
        else:
            _save_shards(folder / kind, held)
    if not dist.is_initialized() or dist.get_rank() == 0:
        document = {"kinds": sorted(kinds), **counts}
        (folder / _COUNTS_FILE).write_text(json.dumps(document, indent=2), encoding="utf-8")
    if dist.is_initialized():
        dist.barrier()


def load_state(folder: Path, optimizer: ParameterOptimizer) -> dict[str, Any]:
    """Restores what `save_state` wrote and returns the counts. Raises CheckpointError where it does not fit."""
    document: dict[str, Any] = json.loads((folder / _COUNTS_FILE).read_text(encoding="utf-8"))
    kinds = [kind for kind in document.pop("kinds") if kind != _PARAMETERS]
    load_parameters(folder, optimizer)
    state: dict[str, dict[str, Tensor]] = {}
    for kind in kinds:
        stored = _stored(folder, kind)
        state[kind] = {name: _room_for(stored.tensors[name], optimizer.masters[name]) for name in stored.tensors}
        stored.read_into(state[kind])
    optimizer.load_state_tensors(state)
    return document


@torch.no_grad()
def load_parameters(folder: Path, optimizer: ParameterOptimizer) -> None:
    """Takes the parameters alone of what `save_state` wrote. Raises CheckpointError where they do not fit."""
    stored = _stored(folder, _PARAMETERS)
    _check_names(folder, stored.tensors, optimizer.parameters)
    stored.read_into({name: parameter.detach() for name, parameter in optimizer.parameters.items()})
    for name, parameter in optimizer.parameters.items():
        if optimizer.masters[name] is not parameter:
            optimizer.masters[name].copy_(parameter)


def holds_state(folder: Path) -> bool:
    """Whether a folder is what `save_state` wrote."""
    is_there = (folder / f"{_PARAMETERS}.safetensors").is_file() or (folder / _PARAMETERS).is_dir()
    return is_there and (folder / _COUNTS_FILE).is_file()


# --------------------------------------------------------------------------------------------- files


class _Stored(Protocol):
    """One kind of tensor in a folder."""

    tensors: dict[str, torch.Size]

    def read_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Fills the tensors of these names; of a sharded one, what this process holds."""


class _WholeTensors:
    """A file that one process wrote."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with safe_open(file, framework="pt") as opened:
            self.tensors = {name: torch.Size(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118

    def read_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies whole tensors or the rows of them that are held here."""
        with safe_open(self._file, framework="pt") as opened:
            for name, tensor in tensors.items():
                if isinstance(tensor, DTensor):
                    tensor.to_local().copy_(opened.get_slice(name)[_held_slices(tensor)])
                else:
                    tensor.copy_(opened.get_tensor(name))


class _Shards:
    """A folder that many processes wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
        self.tensors = {
            name: stored.size for name, stored in found.items() if isinstance(stored, TensorStorageMetadata)
        }

    def read_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Reads, from all shards, what is held here. Raises CheckpointError where a shard is missing or damaged."""
        reader = HuggingFaceStorageReader(str(self._folder))
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "torch.distributed is disabled")  # by purpose, in one process
                load_shards(dict(tensors), storage_reader=reader, no_dist=not dist.is_initialized())
        except CheckpointException as error:
            raise _one_failure(error, f"read {self._folder}") from error


def _stored(folder: Path, kind: str) -> _Stored:
    shards = folder / kind
    return _Shards(shards) if shards.is_dir() else _WholeTensors(folder / f"{kind}.safetensors")


def _save_shards(folder: Path, tensors: dict[str, Tensor]) -> None:
    folder.mkdir(exist_ok=True)
    try:
        save_shards(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:
        raise _one_failure(error, f"write {folder}") from error


def _one_failure(error: CheckpointException, what: str) -> CheckpointError:
    """Names the first process that failed; all raise the same."""
    rank, (cause, _) = min(error.failures.items())
    return CheckpointError(f"training process {rank} could not {what}: {type(cause).__name__}: {cause}")


def _held_slices(tensor: DTensor) -> tuple[slice, ...]:
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(offset, offset + size) for size, offset in zip(sizes, offsets, strict=True))


def _room_for(size: torch.Size, master: Tensor) -> Tensor:
    """A tensor for what the optimizer keeps of a parameter: placed as it is, or a count of updates."""
    if size == master.shape:
        return torch.empty_like(master, requires_grad=False)
    return torch.empty(size, dtype=torch.float32, device=master.device)


def _check_names(folder: Path, saved: Mapping[str, torch.Size], trained: Mapping[str, Tensor]) -> None:
    if saved.keys() != trained.keys():
        missing, unknown = sorted(trained.keys() - saved.keys()), sorted(saved.keys() - trained.keys())
        raise CheckpointError(
            f"{folder} must hold the parameters that are trained; missing {missing[:3]} ({len(missing)}), "
            f"unknown {unknown[:3]} ({len(unknown)})",
            "resume with the model and adapters that the checkpoint was written with",
        )
    for name, shape in saved.items():
        if shape != trained[name].shape:
            raise CheckpointError(f"{name} must have shape {tuple(trained[name].shape)}, got {tuple(shape)}")
