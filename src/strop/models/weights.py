"""The weights of a model as a stream: every one once, under the model's own name for it."""

from collections.abc import Iterator

import torch
from torch import nn

from strop.records import WeightChunk


def named_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields parameters and persistent buffers without copying; tied ones once, under their first name."""
    saved = model.state_dict(keep_vars=True)
    seen: set[int] = set()
    for name, tensor in saved.items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor.detach()


def weight_chunks(model: nn.Module, version: int = 0) -> Iterator[WeightChunk]:
    """Yields the weights of a model without adapters as chunks of one version."""
    for name, tensor in named_weights(model):
        yield WeightChunk(name, tensor, version)
