"""Layers of transformers' decoders computed in fewer passes over memory, each taken only where it gives the same."""

from strop.models.fused.replace import fuse_layers

__all__ = ["fuse_layers"]
