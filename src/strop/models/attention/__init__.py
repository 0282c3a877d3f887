"""Packed attention: one function registered with transformers, and the layouts that it asks."""

from strop.models.attention.interface import ATTENTION_NAME, LAYOUT_KEYWORD, AttentionCall, AttentionLayout
from strop.models.attention.registry import UnsupportedAttentionError, register_attention
from strop.models.attention.tree import TreeLayout

__all__ = [
    "ATTENTION_NAME",
    "LAYOUT_KEYWORD",
    "AttentionCall",
    "AttentionLayout",
    "TreeLayout",
    "UnsupportedAttentionError",
    "register_attention",
]
