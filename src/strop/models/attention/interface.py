"""The one attention function that strop registers with transformers.

A model loaded with `attn_implementation=ATTENTION_NAME` runs over flat tokens, `input_ids` of [1, T], and
takes a layout as the keyword `strop_layout` of its forward. transformers passes unknown keywords down to
every attention layer, and each layer asks the layout to attend. Two layouts exist: the tree of segments
(training and scoring) and the decode step of the native engine.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

ATTENTION_NAME = "strop"
LAYOUT_KEYWORD = "strop_layout"


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What one layer asks: H query heads, K key-value heads, D head size; positions are already rotated in."""

    layer_index: int
    query: torch.Tensor
    """[1, H, T, D]"""
    key: torch.Tensor
    """[1, K, T, D]"""
    value: torch.Tensor
    """[1, K, T, D]"""
    scaling: float
    sliding_window: int | None = None
    """A token sees keys whose ordinal is greater than its own minus the window."""
    softcap: float | None = None
    """Scores become softcap * tanh(scores / softcap) before masking."""
    sinks: torch.Tensor | None = None
    """[H] one extra logit a head that takes probability and gives no value."""


class AttentionLayout(Protocol):
    """Knows which token may see which, and where keys and values live."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Returns [1, T, H, D]."""
