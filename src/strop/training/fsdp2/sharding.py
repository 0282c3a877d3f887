"""FSDP2 over all processes, with plain sums of gradients; one process is left as it is.

shard_size unset: every weight is in parts over all processes      mesh [R]
shard_size S:     R / S replicas, each in parts over S processes   mesh [R / S, S] (HSDP)
"""

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from strop.errors import ConfigError
from strop.protocols import Device


def num_processes() -> int:
    """Returns how many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def shard(module: nn.Module, hf_model: PreTrainedModel, device: Device, shard_size: int | None = None) -> None:
    """Shards every layer of the model in it, what stands beside the model, then the rest as the root.

    Does nothing in a single process. Weights without memory ("meta") stay so. Raises ConfigError where the processes
    cannot be parted into groups of `shard_size`.

    The weights of a loss are fixed over the whole mini-batch, so the gradient of the whole is the sum of the
    processes' gradients. FSDP's default would divide it by their number.
    """
    mesh = _mesh(device, shard_size)
    if mesh is None:
        return
    for layer in [*_decoder_layers(hf_model), *_other_children(module, hf_model)]:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)


def _mesh(device: Device, shard_size: int | None) -> DeviceMesh | None:
    """All processes, in rows of `shard_size` that hold one replica each; None where there is one process."""
    total = num_processes()
    if shard_size is not None and total % shard_size:
        raise ConfigError(
            f"training.shard_size must divide the number of training processes ({total}), got {shard_size}",
            "Leave it out to part every weight over all of them.",
        )
    if total == 1:
        return None
    if shard_size is None or shard_size == total:
        return init_device_mesh(device.torch_device.type, (total,))
    shape = (total // shard_size, shard_size)
    return init_device_mesh(device.torch_device.type, shape, mesh_dim_names=("replicate", "shard"))


def full_tensor(tensor: Tensor) -> Tensor:
    """Returns the tensor gathered from all shards, or itself; every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_part(tensor: Tensor) -> Tensor:
    """Returns what this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sum_over_shards(value: Tensor, like: Tensor) -> Tensor:
    """Sums what each process worked out of its part of tensors sharded as `like`; replicas count once."""
    if not isinstance(like, DTensor):
        return value
    value = value.clone()
    dist.all_reduce(value, group=like.device_mesh.get_group(like.device_mesh.ndim - 1))
    return value


def _decoder_layers(hf_model: PreTrainedModel) -> list[nn.Module]:
    """The modules that transformers says must not be split: the decoder's layers."""
    names = set(hf_model._no_split_modules or ())
    return [module for module in hf_model.modules() if type(module).__name__ in names]


def _other_children(module: nn.Module, hf_model: PreTrainedModel) -> list[nn.Module]:
    """What stands beside the model: it may have a dtype of its own, and FSDP takes one dtype a shard."""
    return [child for child in module.children() if child is not hf_model]
