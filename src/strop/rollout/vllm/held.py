"""Where vLLM holds each weight of the checkpoint; runs in vLLM's worker.

vLLM stacks q, k and v, and gate and up, in one parameter each, pads the vocabulary, and on a CPU packs linear weights
into a layout that cannot be read back and drops the plain ones. So every checkpoint name is found here as rows of one
parameter, and what is packed is asked for by a product with a vector of signs: W r for the rows of one weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

from strop.transfer.checksum import weight_checksum

ROUNDING: Final = {torch.float32: 16.0, torch.bfloat16: 2.0, torch.float16: 2.0}
"""A product may differ from one with the plain weight by so many times the type's epsilon, relative to the rows' norm,
in root mean square over the rows. In half types the result itself is rounded, in float32 only the sums are."""


@dataclass(frozen=True)
class HeldWeight:
    """One checkpoint weight: `num_rows` rows of a layer's parameter, from `first_row` on."""

    layer: nn.Module
    parameter: str
    first_row: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    packed_in: nn.Module | None
    """The layer whose product uses a packed copy of it; a tied head is another layer than that of the parameter."""

    @property
    def is_plain(self) -> bool:
        """Whether the parameter itself is still there."""
        return self.layer.get_parameter(self.parameter).numel() > 0

    def read(self) -> torch.Tensor:
        """Returns the weight as it is held, where it is plain."""
        held = self.layer.get_parameter(self.parameter)
        return held if not self.shape else held[self.first_row : self.first_row + self.shape[0]]

    @torch.no_grad()
    def product(self) -> torch.Tensor:
        """Returns W r in float32, as the packed copy computes it."""
        signs = sign_vector(self.shape[1]).to(self.dtype)
        output: torch.Tensor = _quant_method(self.packed_in).apply(self.packed_in, signs[None], bias=None)[0]
        return output[self.first_row : self.first_row + self.shape[0]].float()


@dataclass(frozen=True)
class Arrival:
    """What is kept of a weight that arrived: enough to see whether the engine computes with it."""

    checksum: float
    product: torch.Tensor | None
    row_norm: float
    """Root mean square of the rows' norms; 0 where there is no product."""

    @classmethod
    def of(cls, tensor: torch.Tensor, held: HeldWeight) -> "Arrival":
        """Measures a weight in the engine's own type."""
        if held.packed_in is None:
            return cls(weight_checksum(tensor), None, 0.0)
        plain = tensor.float()
        norm = float(torch.linalg.vector_norm(plain)) / max(1, len(plain)) ** 0.5
        return cls(weight_checksum(tensor), plain @ sign_vector(plain.shape[1]), norm)

    def is_computed_with(self, held: HeldWeight) -> bool:
        """Whether the packed copy gives the product of this weight."""
        assert self.product is not None
        difference = float((held.product() - self.product).square().mean().sqrt())
        return difference <= ROUNDING[held.dtype] * torch.finfo(held.dtype).eps * self.row_norm


def sign_vector(size: int) -> torch.Tensor:
    """Returns a fixed [size] float32 vector of signs: exact in every type, and blind to no direction in particular."""
    generator = torch.Generator().manual_seed(size)
    return torch.randint(0, 2, (size,), generator=generator).float() * 2 - 1


def held_weights(model: nn.Module) -> dict[str, HeldWeight]:
    """Returns every weight of the model by its checkpoint name; tied ones once, under the name that comes first."""
    held: dict[str, HeldWeight] = {}
    seen: set[int] = set()
    for layer_name, layer in model.named_modules():
        for parameter, tensor in layer.named_parameters(recurse=False):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                held.update(_parts(model, layer_name, layer, parameter))
    return held


def tied_names(model: nn.Module) -> dict[str, str]:
    """Returns the names that a checkpoint may have beside those of `held_weights`, each with its tied one."""
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if id(tensor) in first:
            tied[name] = first[id(tensor)]
        first.setdefault(id(tensor), name)
    return tied


def heads(model: nn.Module) -> list[ParallelLMHead]:
    """Returns the output heads of a model."""
    return [layer for layer in model.modules() if isinstance(layer, ParallelLMHead)]


def _parts(model: nn.Module, layer_name: str, layer: nn.Module, parameter: str) -> Iterator[tuple[str, HeldWeight]]:
    whole = _loaded_form(layer, parameter)
    packed_in = _packed_in(model, layer, parameter)
    first_row = 0
    for part_name, num_rows in _split(model, layer_name, layer, whole.shape):
        shape = (num_rows, *whole.shape[1:]) if whole.shape else ()
        name = f"{part_name}.{parameter}" if part_name else parameter
        yield name, HeldWeight(layer, parameter, first_row, tuple(shape), whole.dtype, packed_in)
        first_row += num_rows


def _loaded_form(layer: nn.Module, parameter: str) -> torch.Tensor:
    """The parameter as it was before it was packed, on the meta device; vLLM keeps this for reloading."""
    recorded: dict[str, torch.Tensor] = get_layerwise_info(layer).restore_metadata[0]
    return recorded.get(parameter, layer.get_parameter(parameter))


def _split(model: nn.Module, layer_name: str, layer: nn.Module, shape: torch.Size) -> list[tuple[str, int]]:
    """Returns the checkpoint's modules that a layer stacks, each with its rows."""
    if not shape:
        return [(layer_name, 0)]
    parent, _, leaf = layer_name.rpartition(".")
    parts = _packed_modules(model).get(leaf, [leaf])
    if len(parts) > 1 and isinstance(layer, LinearBase):
        return [(f"{parent}.{part}", size) for part, size in zip(parts, _output_sizes(layer), strict=True)]
    if isinstance(layer, VocabParallelEmbedding):
        return [(layer_name, layer.org_vocab_size)]
    return [(layer_name, shape[0])]


def _quant_method(layer: Any) -> Any:
    return layer.quant_method


def _packed_modules(model: Any) -> dict[str, list[str]]:
    modules: dict[str, list[str]] = model.packed_modules_mapping
    return modules


def _output_sizes(layer: Any) -> list[int]:
    sizes: list[int] = layer.output_sizes
    return sizes


def _packed_in(model: nn.Module, layer: nn.Module, parameter: str) -> nn.Module | None:
    if parameter != "weight":
        return None
    if isinstance(layer, LinearBase):
        return layer if "cpu_linear" in vars(layer) else None
    weight = layer.get_parameter(parameter)
    users = [head for head in heads(model) if head.weight is weight and "cpu_linear" in vars(head)]
    return users[0] if users else None
