"""Packed experts <-> one tensor an expert: the same numbers under the names that a receiver wants.

transformers holds the experts of most mixture models in two tensors a layer, `gate_up_proj` [E, 2I, H] (gate above up)
and `down_proj` [E, H, I]; checkpoints, and samplers that read them, have 3 E matrices: gate and up [I, H], down [H, I].
Some families pack [E, H, 2I] in their checkpoints, too, and stay as they are: split along the wrong axis they would
give matrices of plausible shape. So families are listed here, and a packed tensor of any other is an error.

What a receiver wants is what the receiver says; nothing is guessed from names of versions.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from strop.errors import SyncError, nearest_hint
from strop.records import WeightChunk

_PACKED_NAME = re.compile(r"(?P<block>.*)\.experts\.(?P<kind>gate_up_proj|down_proj)")


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """What a family's checkpoints call the parts of `{layer}.mlp.experts`."""

    block: str = "mlp"
    """The module that holds the experts."""
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


_USUAL = ExpertNames()
EXPERT_NAMES: dict[str, ExpertNames | None] = {
    "deepseek_v2": _USUAL,
    "deepseek_v3": _USUAL,
    "glm4_moe": _USUAL,
    "mixtral": ExpertNames("block_sparse_moe", "w1", "w3", "w2"),
    "olmoe": _USUAL,
    "qwen2_moe": _USUAL,
    "qwen3_moe": _USUAL,
    "qwen3_next": _USUAL,
    "gpt_oss": None,
    "llama4": None,
    "llama4_text": None,
}
"""By model type; None where checkpoints are packed as the model is."""


def split_experts(chunks: Iterable[WeightChunk], model_type: str) -> Iterator[WeightChunk]:
    """Turns packed experts into one tensor an expert, views of the packed one; all others pass as they are.

    Raises SyncError for a packed tensor of a family that is not in `EXPERT_NAMES`, or of another shape.
    """
    for chunk in chunks:
        found = _PACKED_NAME.fullmatch(chunk.name)
        names = None if found is None or chunk.tensor.ndim != 3 else _names_of(model_type, chunk.name)
        if found is None or names is None:
            yield chunk
        else:
            prefix = f"{found['block'].removesuffix('.mlp')}.{names.block}.experts"
            yield from _split(chunk, found["kind"], prefix, names)


def _names_of(model_type: str, tensor_name: str) -> ExpertNames | None:
    if model_type not in EXPERT_NAMES:
        raise SyncError(
            f"the layout of {tensor_name} must be known to be split, got a model of type {model_type!r}"
            f"{nearest_hint(model_type, EXPERT_NAMES)}",
            "Add the family to transfer/layouts.py, or use a sampler that takes packed experts.",
        )
    return EXPERT_NAMES[model_type]


def _split(chunk: WeightChunk, kind: str, prefix: str, names: ExpertNames) -> Iterator[WeightChunk]:
    if kind == "gate_up_proj" and chunk.tensor.shape[1] % 2:
        raise SyncError(f"{chunk.name} must hold gate and up one above the other, got {tuple(chunk.tensor.shape)}")
    for expert, matrix in enumerate(chunk.tensor):
        parts = zip((names.gate, names.up), matrix.chunk(2), strict=True)
        for part, tensor in parts if kind == "gate_up_proj" else ((names.down, matrix),):
            yield WeightChunk(f"{prefix}.{expert}.{part}.weight", tensor, chunk.version)


def pack_experts(chunks: Iterable[WeightChunk], model_type: str, num_experts: int) -> Iterator[WeightChunk]:
    """Turns one tensor an expert into packed ones, as soon as a layer's are complete; all others pass as they are.

    One layer is under way at a time. Raises SyncError naming what was missing when the next layer or the end came,
    what came twice, and what had another shape than its neighbours; and as `split_experts` for unknown families.
    """
    names = _names_of(model_type, "the experts")
    if names is None:
        yield from chunks
        return
    pattern = _single_pattern(names)
    layer: _Layer | None = None
    for chunk in chunks:
        found = pattern.fullmatch(chunk.name)
        if found is None:
            yield chunk
            continue
        if layer is not None and layer.prefix != found["prefix"]:
            layer.require_complete()
            layer = None
        layer = layer or _Layer(found["prefix"], names, num_experts)
        whole = layer.take(chunk, int(found["expert"]), found["part"])
        if whole is not None:
            yield whole
    if layer is not None:
        layer.require_complete()


def _single_pattern(names: ExpertNames) -> re.Pattern[str]:
    parts = "|".join((names.gate, names.up, names.down))
    return re.compile(rf"(?P<prefix>.*)\.{names.block}\.experts\.(?P<expert>\d+)\.(?P<part>{parts})\.weight")


@dataclass
class _Layer:
    """The experts of one layer, as they arrive."""

    prefix: str
    names: ExpertNames
    num_experts: int
    _packed: dict[str, torch.Tensor] = field(default_factory=dict)
    _seen: set[tuple[int, str]] = field(default_factory=set)

    def take(self, chunk: WeightChunk, expert: int, part: str) -> WeightChunk | None:
        """Copies one matrix to its place; returns the packed tensor that it was the last of."""
        if expert >= self.num_experts or (expert, part) in self._seen:
            raise SyncError(f"each of {self.num_experts} experts must come once, got {chunk.name}")
        kind = "down_proj" if part == self.names.down else "gate_up_proj"
        place = self._place(chunk, kind, expert, part)
        if place.shape != chunk.tensor.shape:
            raise SyncError(f"{chunk.name} must be {tuple(place.shape)}, got {tuple(chunk.tensor.shape)}")
        place.copy_(chunk.tensor)
        self._seen.add((expert, part))
        if self._missing(kind):
            return None
        return WeightChunk(f"{self.prefix}.mlp.experts.{kind}", self._packed.pop(kind), chunk.version)

    def require_complete(self) -> None:
        """Raises SyncError naming what did not come."""
        missing = self._missing("gate_up_proj") + self._missing("down_proj")
        if missing:
            raise SyncError(
                f"all experts of {self.prefix} must come before the next layer, missing: {missing[0]} and "
                f"{len(missing) - 1} more"
            )

    def _place(self, chunk: WeightChunk, kind: str, expert: int, part: str) -> torch.Tensor:
        rows, columns = chunk.tensor.shape
        if kind == "down_proj":
            return self._of(kind, rows, columns, chunk)[expert]
        gate, up = self._of(kind, 2 * rows, columns, chunk)[expert].chunk(2)
        return gate if part == self.names.gate else up

    def _of(self, kind: str, rows: int, columns: int, like: WeightChunk) -> torch.Tensor:
        if kind not in self._packed:
            self._packed[kind] = like.tensor.new_empty(self.num_experts, rows, columns)
        return self._packed[kind]

    def _missing(self, kind: str) -> list[str]:
        parts = (self.names.down,) if kind == "down_proj" else (self.names.gate, self.names.up)
        wanted = ((expert, part) for expert in range(self.num_experts) for part in parts)
        return [f"{expert}.{part}" for expert, part in wanted if (expert, part) not in self._seen]
