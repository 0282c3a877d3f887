"""The attention layer that most decoders share, over flat tokens: projections, maybe norms of heads, rotary positions,
the layout's attention, output projection."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from strop.models.attention.registry import packed_attention_forward
from strop.models.fused.rotary import rotate


class AttentionOptions(NamedTuple):
    """What an attention layer asks of its layout in every call."""

    scaling: float
    sliding_window: int | None
    softcap: float | None


class FusedAttention(nn.Module):
    """Stands in the place of a transformers attention layer, with its projections under their names."""

    def __init__(
        self, projections: Mapping[str, nn.Module], head_size: int, layer_index: int, options: AttentionOptions
    ) -> None:
        """Shares q_proj, k_proj, v_proj and o_proj, and q_norm and k_norm where the layer has them."""
        super().__init__()
        for name, module in projections.items():
            self.add_module(name, module)
        self.head_size = head_size
        self.layer_idx = layer_index
        self._options = options._asdict()
        self._normalises_heads = "q_norm" in projections

    def forward(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], **keywords: Any
    ) -> tuple[Tensor, None]:
        """Returns [1, T, H] for [1, T, H] and cosines and sines [1, T, D], and no attention weights."""
        if keywords.pop("past_key_values", None) is not None:
            raise ValueError("a fused attention layer must be called without a cache of transformers, got one")
        cos_T1D, sin_T1D = (angles[0].unsqueeze(1) for angles in position_embeddings)
        query, key, value = (self._heads(name, hidden_states) for name in ("q_proj", "k_proj", "v_proj"))
        if self._normalises_heads:
            query, key = self.get_submodule("q_norm")(query), self.get_submodule("k_norm")(key)
        query, key = rotate(query, cos_T1D, sin_T1D), rotate(key, cos_T1D, sin_T1D)
        heads = (_head_first(tensor) for tensor in (query, key, value))
        attended, _ = packed_attention_forward(self, *heads, **{**keywords, **self._options})
        output: Tensor = self.get_submodule("o_proj")(attended.flatten(-2))
        return output, None

    def _heads(self, name: str, hidden_states: Tensor) -> Tensor:
        """Returns [T, heads, D]."""
        projected: Tensor = self.get_submodule(name)(hidden_states[0])
        return projected.view(projected.shape[0], -1, self.head_size)


def _head_first(x_TND: Tensor) -> Tensor:
    """Returns a view [1, heads, T, D]."""
    return x_TND.transpose(0, 1).unsqueeze(0)
