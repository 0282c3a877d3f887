"""FSDP2 over all processes, with plain sums of gradients; one process is left as it is."""

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from strop.protocols import Device


def num_processes() -> int:
    """Returns how many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def shard(module: nn.Module, hf_model: PreTrainedModel, device: Device) -> None:
    """Shards every layer of the model in it, what stands beside the model, then the rest as the root.

    Does nothing in a single process.

    The weights of a loss are fixed over the whole mini-batch, so the gradient of the whole is the sum of the
    processes' gradients. FSDP's default would divide it by their number.
    """
    if num_processes() == 1:
        return
    mesh = init_device_mesh(device.torch_device.type, (num_processes(),))
    for layer in [*_decoder_layers(hf_model), *_other_children(module, hf_model)]:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)


def full_tensor(tensor: Tensor) -> Tensor:
    """Returns the tensor gathered from all shards, or itself; every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _decoder_layers(hf_model: PreTrainedModel) -> list[nn.Module]:
    """The modules that transformers says must not be split: the decoder's layers."""
    names = set(hf_model._no_split_modules or ())
    return [module for module in hf_model.modules() if type(module).__name__ in names]


def _other_children(module: nn.Module, hf_model: PreTrainedModel) -> list[nn.Module]:
    """What stands beside the model: it may have a dtype of its own, and FSDP takes one dtype a shard."""
    return [child for child in module.children() if child is not hf_model]
