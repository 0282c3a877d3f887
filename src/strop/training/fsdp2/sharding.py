"""FSDP2 over all processes, with plain sums of gradients; one process is left as it is."""

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from strop.protocols import Device
from strop.training.fsdp2.policy import PolicyModule


def num_processes() -> int:
    """Returns how many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def shard(policy: PolicyModule, device: Device) -> None:
    """Shards every decoder layer, then the rest as the root; does nothing in a single process.

    The weights of a loss are fixed over the whole mini-batch, so the gradient of the whole is the sum of the
    processes' gradients. FSDP's default would divide it by their number.
    """
    if num_processes() == 1:
        return
    mesh = init_device_mesh(device.torch_device.type, (num_processes(),))
    for layer in _decoder_layers(policy):
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def full_tensor(tensor: Tensor) -> Tensor:
    """Returns the tensor gathered from all shards, or itself; every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _decoder_layers(policy: PolicyModule) -> list[nn.Module]:
    """The modules that transformers says must not be split: the decoder's layers."""
    names = set(policy.causal_lm._no_split_modules or ())
    return [module for module in policy.causal_lm.modules() if type(module).__name__ in names]
