"""Runs the decoder of a model over a packed batch: what the policy and a critic compute alike."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from strop.models.attention.interface import ATTENTION_NAME, LAYOUT_KEYWORD
from strop.models.attention.tree import TreeLayout
from strop.records import PackedBatch


def require_packed_attention(hf_model: PreTrainedModel, *, shares_prefixes: bool) -> None:
    """Raises ValueError where a model that is to share prefixes was loaded with another attention."""
    implementation = hf_model.config._attn_implementation
    if implementation != ATTENTION_NAME and shares_prefixes:
        raise ValueError(f"the model must be loaded with attention {ATTENTION_NAME!r}, got {implementation!r}")


def hidden_states(decoder: nn.Module, batch: PackedBatch, *, shares_prefixes: bool) -> Tensor:
    """Returns the hidden states of a batch's tokens, [T, H].

    Args:
        decoder: what `get_decoder()` of a causal language model gives.
        batch: on the device of the model.
        shares_prefixes: False runs each root segment alone, for models with recurrent layers.
    """
    if shares_prefixes:
        return _run(decoder, batch.token_ids_T, batch.rope_positions_T, TreeLayout.from_batch(batch))
    parts = []
    for segment in batch.segments:
        if segment.parent is not None:
            raise ValueError("this model computes every row alone: pack with share_prefix=False")
        rows = slice(segment.start, segment.stop)
        layout = TreeLayout.from_lengths([segment.num_tokens])
        parts.append(_run(decoder, batch.token_ids_T[rows], batch.rope_positions_T[rows], layout))
    return torch.cat(parts)


def _run(decoder: nn.Module, token_ids_T: Tensor, rope_positions_T: Tensor, layout: TreeLayout) -> Tensor:
    positions = rope_positions_T[None] if rope_positions_T.ndim == 1 else rope_positions_T.t()[:, None]
    outputs = decoder(input_ids=token_ids_T[None], position_ids=positions, use_cache=False, **{LAYOUT_KEYWORD: layout})
    hidden_TH: Tensor = outputs.last_hidden_state[0]
    return hidden_TH
