"""Packed attention: one function registered with transformers, and the layouts that it asks."""

from strop.models.attention.interface import ATTENTION_NAME, LAYOUT_KEYWORD, AttentionCall, AttentionLayout
from strop.models.attention.layer_kinds import LayerKinds, describe_layers, supports_shared_prefix
from strop.models.attention.registry import UnsupportedAttentionError, register_attention
from strop.models.attention.self_check import check_packed_attention
from strop.models.attention.tree import TreeLayout

__all__ = [
    "ATTENTION_NAME",
    "LAYOUT_KEYWORD",
    "AttentionCall",
    "AttentionLayout",
    "LayerKinds",
    "TreeLayout",
    "UnsupportedAttentionError",
    "check_packed_attention",
    "describe_layers",
    "register_attention",
    "supports_shared_prefix",
]
