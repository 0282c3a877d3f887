"""Linear layers that hold their weight in oneDNN's packed layout: decoding on a CPU is memory traffic and blocking.

A plain float32 product with few rows packs its weight anew in every call. Here it is packed once, and the plain copy
is given up (except where the embedding shares it). A packed weight is a copy: it must be packed again whenever the
weight changes, and `PackedLinear.write` is the only door.
"""

from typing import Final

import torch
from torch import nn

PACKED_FOR_ROWS: Final = 32
"""The layout is chosen for batches of this size and serves all others; measured best or equal from 4 rows up."""


def can_pack(linear: nn.Linear) -> bool:
    """Whether oneDNN has a packed layout for the layer: float32 on a CPU."""
    weight = linear.weight
    is_float32_on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return is_float32_on_cpu and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


class PackedLinear(nn.Module):
    """y = x @ weight.T + bias for inference, with a packed [O, I] weight; not a parameter, never trained."""

    def __init__(self, weight: torch.Tensor, bias: nn.Parameter | None) -> None:
        """Packs a copy of `weight`; the caller drops the plain one."""
        super().__init__()
        self.shape = weight.shape
        self.bias = bias
        self.write(weight)

    @torch.no_grad()
    def write(self, weight: torch.Tensor) -> None:
        """Replaces the weight."""
        plain = weight.detach().to(device="cpu", dtype=torch.float32).contiguous()
        self._packed: torch.Tensor | None = torch.ops.mkldnn._reorder_linear_weight(plain, PACKED_FOR_ROWS)

    def release(self) -> None:
        """Gives the weight's memory back; `write` takes a new one."""
        self._packed = None

    @torch.no_grad()
    def read(self) -> torch.Tensor:
        """Returns the [O, I] weight as it is held, unpacked into a new tensor."""
        weight: torch.Tensor = self._held().to_dense()
        return weight

    def _held(self) -> torch.Tensor:
        if self._packed is None:
            raise RuntimeError("the weight was given back and not received again")
        return self._packed

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns [..., O] for [..., I]."""
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._held(), self.bias, "none", [], "")
        return outputs


def pack_linears(model: nn.Module) -> dict[str, PackedLinear]:
    """Replaces every packable `nn.Linear` of the model in place; returns the packed layers by module name."""
    names = [name for name, module in model.named_modules() if type(module) is nn.Linear and can_pack(module)]
    packed = {}
    for name in names:
        parent_name, _, child_name = name.rpartition(".")
        parent = model.get_submodule(parent_name)
        linear = parent.get_submodule(child_name)
        assert isinstance(linear, nn.Linear)
        packed[name] = PackedLinear(linear.weight, linear.bias)
        setattr(parent, child_name, packed[name])
    return packed
