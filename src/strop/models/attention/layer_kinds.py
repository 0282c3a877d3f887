"""Which kinds of layers a model has, and so whether the rows of a group may share their prefix.

Softmax attention is told by the layout who sees whom. Layers that carry a state from token to token (linear attention,
state-space, short convolutions) read their tokens as one sequence: they cannot share a prefix inside one flat row, nor
stand behind another sequence. Models with such layers run every row alone.
"""

from dataclasses import dataclass
from typing import Final

from transformers import PreTrainedConfig

from strop.errors import ModelError

SOFTMAX_KINDS: Final = frozenset({"full_attention", "sliding_attention", "attention"})
RECURRENT_KINDS: Final = frozenset(
    {"linear_attention", "mamba", "mamba2", "conv", "recurrent", "hybrid", "hybrid_sliding"}
)
TOKENWISE_KINDS: Final = frozenset({"moe", "mlp", "sparse", "dense"})
RECURRENT_MODEL_TYPES: Final = frozenset(
    {
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "jamba",
        "kimi_linear",
        "lfm2",
        "lfm2_moe",
        "mamba",
        "mamba2",
        "minimax",
        "nemotron_h",
        "olmo_hybrid",
        "qwen3_next",
        "recurrent_gemma",
        "rwkv",
        "xlstm",
        "zamba",
        "zamba2",
        "zaya",
    }
)
"""Families that carry a state whatever their config says of their layers."""


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """The kind of each layer, in transformers' words, for a config that says so; else one kind for all."""

    names: tuple[str, ...]
    model_type: str

    @property
    def supports_shared_prefix(self) -> bool:
        """Whether no layer carries a state from token to token."""
        return self.model_type not in RECURRENT_MODEL_TYPES and not RECURRENT_KINDS.intersection(self.names)


def describe_layers(config: PreTrainedConfig) -> LayerKinds:
    """Returns the kinds of the layers of a language model (the text part of a multimodal one).

    Raises ModelError for kinds that the packed attention does not compute, such as chunked or indexed attention.
    """
    text_config = config.get_text_config()
    kinds = _layer_names(text_config)
    unknown = sorted(set(kinds) - SOFTMAX_KINDS - RECURRENT_KINDS - TOKENWISE_KINDS)
    if unknown:
        raise ModelError(
            f"every layer of a model must be one of {sorted(SOFTMAX_KINDS | RECURRENT_KINDS | TOKENWISE_KINDS)}, "
            f"got {unknown} in {text_config.model_type}",
            "Choose a model with full, sliding-window or linear attention.",
        )
    return LayerKinds(kinds, text_config.model_type)


def supports_shared_prefix(config: PreTrainedConfig) -> bool:
    """Returns whether rows may share prefixes in one flat row; raises ModelError as `describe_layers` does."""
    return describe_layers(config).supports_shared_prefix


def _layer_names(config: PreTrainedConfig) -> tuple[str, ...]:
    # Two spellings exist; a family without either has softmax attention everywhere, or is known by its model type.
    for key in ("layer_types", "layers_block_type"):
        names = getattr(config, key, None)
        if names:
            return tuple(names)
    return ("recurrent",) if config.model_type in RECURRENT_MODEL_TYPES else ("full_attention",)
