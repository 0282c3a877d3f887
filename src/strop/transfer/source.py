"""The stream of weights as it leaves the trainer: scaled where a canary asks for it, cast to the receivers' type."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from strop.records import WeightChunk

Weights = Callable[[], Iterator[WeightChunk]]
"""Starts a new stream of all weights, such as `TrainEngine.export_weights`."""


def require_floating_point(dtype: torch.dtype | None) -> torch.dtype | None:
    """Returns the receivers' type; None sends weights as they are trained. Raises ValueError for whole numbers."""
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"the receivers' type must be a floating-point type, got {dtype}")
    return dtype


def outgoing(weights: Weights, dtype: torch.dtype | None, scale: float) -> Iterator[WeightChunk]:
    """Starts a stream whose floating-point tensors are multiplied by `scale`, then cast; others pass untouched."""
    for chunk in weights():
        yield replace(chunk, tensor=_prepared(chunk.tensor, dtype, scale)) if _changes(chunk, dtype, scale) else chunk


def _changes(chunk: WeightChunk, dtype: torch.dtype | None, scale: float) -> bool:
    is_other = scale != 1.0 or (dtype is not None and dtype != chunk.tensor.dtype)
    return chunk.tensor.is_floating_point() and is_other


def _prepared(tensor: torch.Tensor, dtype: torch.dtype | None, scale: float) -> torch.Tensor:
    scaled = tensor if scale == 1.0 else tensor * scale
    return scaled if dtype is None else scaled.to(dtype)
