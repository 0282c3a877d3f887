"""What computing a packed batch costs, so that work can be shared out by it.

A token costs its pass through the decoder's matrices, a pair of tokens its part of attention, and a target its
logits. Everything is in units of the first, so that short rows count by their tokens and long ones by their square.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import nn
from transformers import PreTrainedModel

from strop.records import PackedBatch, Row
from strop.records.packing import packed_size


@dataclass(frozen=True, slots=True)
class ComputeCosts:
    """Costs in units of one token's pass through the matrices of the decoder."""

    pair: float = 0.0
    """One token attending to one token."""
    target: float = 0.0
    """One prediction through the head."""

    @classmethod
    def of_model(cls, hf_model: PreTrainedModel) -> Self:
        """Counts multiplications by the shapes of a causal language model, which may have no memory ("meta").

        Layers with a sliding window count as if they had none, and all layers as attention.
        """
        config: dict[str, Any] = hf_model.config.get_text_config().to_dict()
        decoder: nn.Module = hf_model.get_decoder()  # type: ignore[no-untyped-call]
        by_token = _matrix_size(decoder, hf_model.get_input_embeddings(), _used_share(config))
        return cls(
            pair=2 * _attention_width(config) * config["num_hidden_layers"] / by_token,
            target=config["vocab_size"] * config["hidden_size"] / by_token,
        )

    def of_batch(self, batch: PackedBatch) -> float:
        """Returns the cost of a packed batch."""
        num_pairs = int(batch.ordinals_T.sum()) + batch.num_tokens
        return batch.num_tokens + self.pair * num_pairs + self.target * batch.num_targets

    def of_rows(self, rows: Sequence[Row], *, share_prefix: bool = True) -> float:
        """Returns the cost of one group's rows once they are packed together."""
        size = packed_size(rows, share_prefix=share_prefix)
        return size.num_tokens + self.pair * size.num_pairs + self.target * size.num_targets


def _matrix_size(decoder: nn.Module, embedding: nn.Module, used_share: float) -> float:
    """Multiplications of one token: packed experts [E, out, in] count as far as they are used."""
    looked_up = {id(weight) for weight in embedding.parameters()}
    sizes = {2: 1.0, 3: used_share}
    return sum(
        weight.numel() * sizes.get(weight.ndim, 0.0) for weight in decoder.parameters() if id(weight) not in looked_up
    )


def _used_share(config: dict[str, Any]) -> float:
    """Which share of a layer's experts a token goes through."""
    total = config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts")
    used = config.get("num_experts_per_tok")
    return used / total if used and total else 1.0


def _attention_width(config: dict[str, Any]) -> int:
    """The sum of the sizes of all heads; 0 without attention."""
    heads: int = config.get("num_attention_heads") or 0
    return heads * (config.get("head_dim") or config["hidden_size"] // heads) if heads else 0
