"""The policy as one module: packed tokens in, log-probs of the targets out, all inside one forward.

Hidden states become log-probs inside this forward because this module is the FSDP root: a head used
outside the root's forward would be a sharded tensor, and worse where it is tied to the embedding.
"""

from torch import nn
from transformers import PreTrainedModel

from strop.algorithms.head_products import LogitTransform
from strop.algorithms.logprobs import TargetScores, Wanted, chunked_logprobs
from strop.models.head import LogitsHead
from strop.records import PackedBatch
from strop.training.fsdp2.decoder import hidden_states, require_packed_attention


class PolicyModule(nn.Module):
    """A causal language model that gives log-probs of a packed batch's targets."""

    def __init__(self, causal_lm: PreTrainedModel, *, chunk_tokens: int, shares_prefixes: bool) -> None:
        """Wraps a model loaded with the packed attention.

        Args:
            causal_lm: the model; adapters, if any, are injected into it already.
            chunk_tokens: how many targets have logits at the same time.
            shares_prefixes: False runs each root segment alone, for models with recurrent layers.
        """
        super().__init__()
        require_packed_attention(causal_lm, shares_prefixes=shares_prefixes)
        self.causal_lm = causal_lm
        self.chunk_tokens = chunk_tokens
        self.shares_prefixes = shares_prefixes

    def forward(self, batch: PackedBatch, temperature: float, wanted: Wanted | None = None) -> TargetScores:
        """Runs the decoder over the batch's tokens and scores its targets.

        Args:
            batch: on the device of the model.
            temperature: divides the logits.
            wanted: what is computed beside the log-probs of the targets.

        Returns:
            A tuple, so that FSDP finds the tensors in it.
        """
        decoder = self.causal_lm.get_decoder()  # type: ignore[no-untyped-call]
        hidden_TH = hidden_states(decoder, batch, shares_prefixes=self.shares_prefixes)
        hidden_NH = hidden_TH.index_select(0, batch.source_index_N)
        head = LogitsHead.from_model(self.causal_lm)
        operands = (hidden_NH.to(head.weight.dtype), head.weight, head.bias, batch.target_ids_N)
        transform = LogitTransform(temperature, head.scale, head.softcap)
        return chunked_logprobs(*operands, transform=transform, chunk=self.chunk_tokens, wanted=wanted)
