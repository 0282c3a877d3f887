"""The critic as one module: packed tokens in, the value of the state before each target out.

The decoder is a causal language model's, without its head: V(s_n) = w . h(s_n) + b, where h is the hidden state
that predicts target n. w and b begin at 0, so that a new critic says 0 of every state.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from strop.records import PackedBatch
from strop.training.fsdp2.decoder import hidden_states, require_packed_attention


class ValueModule(nn.Module):
    """A decoder with a value head, that gives values at a packed batch's targets."""

    def __init__(self, decoder: PreTrainedModel, *, shares_prefixes: bool) -> None:
        """Wraps a decoder loaded with the packed attention.

        Args:
            decoder: what `get_decoder()` of a causal language model gives; adapters are injected into it already.
            shares_prefixes: False runs each root segment alone, for models with recurrent layers.
        """
        super().__init__()
        require_packed_attention(decoder, shares_prefixes=shares_prefixes)
        self.decoder = decoder
        self.shares_prefixes = shares_prefixes
        self.head = nn.Linear(_hidden_size(decoder), 1, dtype=torch.promote_types(decoder.dtype, torch.float32))
        """In float32 at least: in bfloat16 two values could not be closer than half a percent."""
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Returns [N] values, float32 at least; the batch lies on the device of the model."""
        hidden_TH = hidden_states(self.decoder, batch, shares_prefixes=self.shares_prefixes)
        hidden_NH = hidden_TH.index_select(0, batch.source_index_N)
        values_N: Tensor = self.head(hidden_NH.to(self.head.weight.dtype))[:, 0]
        return values_N


def _hidden_size(decoder: PreTrainedModel) -> int:
    size: int = decoder.config.get_text_config().hidden_size
    return size
