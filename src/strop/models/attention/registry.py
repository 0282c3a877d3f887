"""The attention function that transformers calls, and what it does with every keyword it is handed.

transformers hands a layer's attention function a fixed set of tensors and an open set of keywords. A keyword that is
ignored by mistake gives wrong numbers without an error, so every keyword is implemented, known to be harmless, or
refused by name.

No mask function is registered for `ATTENTION_NAME`: transformers then builds no masks at all (`masking_utils` leaves
early), whatever kinds of mask the model asks for. What a model says through masks alone (chunks, windows that are not
passed on) would be lost that way; such layers are recognised by their config and refused.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import torch
from transformers import AttentionInterface

from strop.errors import ModelError
from strop.models.attention.interface import ATTENTION_NAME, LAYOUT_KEYWORD, AttentionCall, AttentionLayout

IMPLEMENTED_KEYWORDS: Final = frozenset({"scaling", "sliding_window", "softcap", "s_aux", "is_causal"})
HARMLESS_KEYWORDS: Final = frozenset(
    {
        "position_ids",  # already rotated into query and key
        "cache_position",
        "use_cache",
        "past_key_values",
        "num_items_in_batch",
        "logits_to_keep",
        "return_dict",
        "output_hidden_states",
        "output_router_logits",
    }
)
"""Keywords that models pass down to every layer and that say nothing about attention."""

REFUSED_KEYWORDS: Final = {
    "dropout": "it must be 0; set attention_dropout to 0 in the model's config",
    "output_attentions": "it must be false; no attention weights are kept",
    "attention_mask": "the layout alone says which token sees which; call the model without a mask",
    "position_bias": "biases on scores are not implemented; use a model with rotary positions",
    "attention_chunk_size": "chunked attention is not implemented; use a model with full or sliding-window attention",
    "cu_seq_lens_q": "the layout alone holds the lengths of packed sequences",
    "cu_seq_lens_k": "the layout alone holds the lengths of packed sequences",
    "max_length_q": "the layout alone holds the lengths of packed sequences",
    "max_length_k": "the layout alone holds the lengths of packed sequences",
    "seq_idx": "the layout alone holds the lengths of packed sequences",
    "cache": "paged caches of transformers are not implemented; pass a layout that holds the cache",
    "indices": "sparse attention over chosen keys is not implemented",
    "block_indices": "sparse attention over chosen blocks is not implemented",
    "token_type_ids": "non-causal spans are not implemented",
}
"""Keywords that change attention in a way that is not implemented, with the remedy; None and False are off."""


class UnsupportedAttentionError(ModelError):
    """A model asks its attention for something that the packed attention does not do."""


def register_attention() -> None:
    """Registers the packed attention with transformers under `ATTENTION_NAME`; calling it again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, packed_attention_forward)


def packed_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Attends as the layout among the keywords says, in the form that transformers expects.

    query is [1, H, T, D], key and value are [1, K, T, D]; returns ([1, T, H, D], None), no attention weights.
    Raises UnsupportedAttentionError for every keyword that is neither implemented nor known to be harmless.
    """
    name = type(module).__name__
    layout = _take_layout(name, keywords)
    _refuse(name, {**keywords, "attention_mask": attention_mask})
    _require_causal(module, keywords.get("is_causal"))
    layer_index = _layer_index(module)
    _require_window_if_sliding(module, layer_index, keywords)
    scaling = keywords.get("scaling")
    call = AttentionCall(
        layer_index=layer_index,
        query=query,
        key=key,
        value=value,
        scaling=float(scaling) if scaling is not None else query.shape[-1] ** -0.5,
        sliding_window=keywords.get("sliding_window"),
        softcap=keywords.get("softcap"),
        sinks=keywords.get("s_aux"),
    )
    return layout.attend(call), None


def _take_layout(name: str, keywords: dict[str, Any]) -> AttentionLayout:
    layout = keywords.pop(LAYOUT_KEYWORD, None)
    if layout is None:
        raise UnsupportedAttentionError(
            f"{name} must be given a layout by the attention implementation {ATTENTION_NAME!r}, got none: call "
            f"model(input_ids, position_ids=..., use_cache=False, {LAYOUT_KEYWORD}=TreeLayout.from_batch(batch)), or "
            f'switch back with model.set_attn_implementation("sdpa")'
        )
    return cast(AttentionLayout, layout)


def _refuse(name: str, keywords: dict[str, Any]) -> None:
    """Raises for the first keyword that must not be ignored."""
    known = IMPLEMENTED_KEYWORDS | HARMLESS_KEYWORDS
    for keyword, value in keywords.items():
        if keyword in known or value is None or value is False or (keyword == "dropout" and value == 0):
            continue
        reason = REFUSED_KEYWORDS.get(keyword, "this keyword is unknown, and ignoring it could give wrong numbers")
        raise UnsupportedAttentionError(f"{keyword} must not be passed to attention, got it in {name}: {reason}")


def _require_causal(module: torch.nn.Module, is_causal: bool | None) -> None:
    # The module's attribute is what transformers' own functions fall back on.
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if not is_causal:
        raise UnsupportedAttentionError(
            f"is_causal must be True, got False in {type(module).__name__}: bidirectional attention is not implemented"
        )


def _layer_index(module: torch.nn.Module) -> int:
    index = getattr(module, "layer_idx", None)
    if index is None:
        raise UnsupportedAttentionError(f"{type(module).__name__} must have a layer_idx, got none")
    return int(index)


def _require_window_if_sliding(module: torch.nn.Module, layer_index: int, keywords: Mapping[str, Any]) -> None:
    """Refuses layers whose kind is told through masks only, since no mask is built."""
    config = getattr(module, "config", None)
    layer_types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    kind = layer_types[layer_index] if layer_types and layer_index < len(layer_types) else None
    # A stray key of a config file says nothing; only a family that declares the key uses it.
    if kind is None and window and hasattr(type(config), "sliding_window"):
        kind = "sliding_attention"
    where = f"layer {layer_index} of {type(module).__name__}"
    if kind == "chunked_attention":
        raise UnsupportedAttentionError(f"{where} is {kind}: {REFUSED_KEYWORDS['attention_chunk_size']}")
    if kind == "sliding_attention" and keywords.get("sliding_window") is None:
        raise UnsupportedAttentionError(
            f"{where} must pass its sliding_window of {window} to attention, got none: the model says it through masks "
            "only, which are not built",
            "Set sliding_window to null in the model's config where full attention is meant, or choose another model.",
        )
