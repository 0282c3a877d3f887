"""How weights travel: a stream of named tensors, never a second full copy."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class WeightChunk:
    """One named tensor of one version. Names are those of the Hugging Face checkpoint."""

    name: str
    tensor: torch.Tensor
    version: int


@dataclass(frozen=True, slots=True)
class WeightReceipt:
    """What a receiver says after a publication; the publisher compares it with what it sent."""

    version: int
    names: tuple[str, ...]
    """Every name received, in order of arrival; each must be there exactly once."""
    checksums: tuple[float, ...]
    """One float64 sum of absolute values a name, computed from what the receiver now holds."""
