"""The engine's weights by checkpoint name, and the reception of a full set in place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from strop.models.weights import named_weights
from strop.records import WeightChunk, WeightReceipt
from strop.rollout.native.linears import PackedLinear, pack_linears

MAX_NAMES_IN_ERROR = 5


@dataclass(frozen=True, slots=True)
class HeldWeight:
    """One weight as the engine holds it: plain, packed, or plain with packed copies (a tied head)."""

    plain: torch.Tensor | None
    packed: tuple[PackedLinear, ...]

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight."""
        return self.packed[0].shape if self.plain is None else self.plain.shape

    @torch.no_grad()
    def write(self, tensor: torch.Tensor) -> None:
        """Replaces the weight everywhere it is held."""
        if self.plain is not None:
            self.plain.copy_(tensor)
        for layer in self.packed:
            layer.write(tensor)

    def release(self) -> int:
        """Gives packed copies back; returns their bytes. Plain weights stay: they are few or shared."""
        for layer in self.packed:
            layer.release()
        return sum(layer.shape.numel() * 4 for layer in self.packed)

    def checksum(self) -> float:
        """Returns the float64 sum of absolute values of what products use: the packed copy where there is one.

        It is in the engine's own dtype: a sender of another dtype must cast before it compares.
        """
        held = self.packed[-1].read() if self.packed else self.plain
        assert held is not None
        return float(torch.linalg.vector_norm(held.detach(), 1, dtype=torch.float64))


class WeightTable:
    """Every weight of a model under its canonical name: tied weights once, under the name that comes first."""

    def __init__(self, model: nn.Module, *, packed_linears: bool) -> None:
        """Packs the model's linear layers where that is asked for and possible."""
        names = [name for name, _ in named_weights(model)]
        self._aliases = _aliases(model, names)
        packed: dict[str, list[PackedLinear]] = {name: [] for name in names}
        for module_name, layer in (pack_linears(model) if packed_linears else {}).items():
            weight_name = f"{module_name}.weight"
            packed[self._aliases.get(weight_name, weight_name)].append(layer)
        plain = {self._aliases.get(name, name): tensor for name, tensor in model.state_dict().items()}
        self._held = {name: HeldWeight(plain.get(name), tuple(packed[name])) for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a full set must have."""
        return tuple(self._held)

    def release(self) -> int:
        """Gives all packed weights back; returns their bytes. A full set must be received before the next product."""
        return sum(held.release() for held in self._held.values())

    def receive(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        """Copies a full set in place; each chunk is used as it arrives and may be freed after it.

        Raises ValueError naming what was unknown, doubled, missing, of another shape or version; the weights then
        are a mixture and must be received anew.
        """
        problems: list[str] = []
        received: list[str] = []
        for chunk in chunks:
            problem = self._problem(chunk, version, received)
            if problem is not None:
                problems.append(problem)
                continue
            self._held[chunk.name].write(chunk.tensor)
            received.append(chunk.name)
        seen = set(received)
        problems += [f"missing: {name}" for name in self._held if name not in seen]
        if problems:
            raise ValueError(_complaint(problems))
        return WeightReceipt(version, tuple(received), tuple(self._held[name].checksum() for name in received))

    def _problem(self, chunk: WeightChunk, version: int, received: Sequence[str]) -> str | None:
        if chunk.name in self._aliases:
            return f"unknown: {chunk.name} (tied to {self._aliases[chunk.name]}: send it once, under that name)"
        if chunk.name not in self._held:
            return f"unknown: {chunk.name}"
        if chunk.name in received:
            return f"doubled: {chunk.name}"
        if chunk.tensor.shape != self._held[chunk.name].shape:
            wanted, got = tuple(self._held[chunk.name].shape), tuple(chunk.tensor.shape)
            return f"wrong shape: {chunk.name} must be {wanted}, got {got}"
        if chunk.version != version:
            return f"wrong version: {chunk.name} must be of version {version}, got {chunk.version}"
        return None


def _aliases(model: nn.Module, names: Sequence[str]) -> dict[str, str]:
    """Returns the other names of tied weights, each with its canonical one of `names`."""
    saved: dict[str, torch.Tensor] = model.state_dict(keep_vars=True)
    canonical = {id(saved[name]): name for name in names}
    return {name: canonical[id(tensor)] for name, tensor in saved.items() if name != canonical[id(tensor)]}


def _complaint(problems: list[str]) -> str:
    shown = "; ".join(problems[:MAX_NAMES_IN_ERROR])
    more = f"; and {len(problems) - MAX_NAMES_IN_ERROR} more" if len(problems) > MAX_NAMES_IN_ERROR else ""
    return f"weights must arrive each exactly once in their own shape, got {shown}{more}"
