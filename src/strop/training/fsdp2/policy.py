"""The policy as one module: packed tokens in, log-probs of the targets out, all inside one forward.

Hidden states become log-probs inside this forward because this module is the FSDP root: a head used
outside the root's forward would be a sharded tensor, and worse where it is tied to the embedding.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from strop.algorithms.head_products import LogitTransform
from strop.algorithms.logprobs import TargetScores, Wanted, chunked_logprobs
from strop.models.attention.interface import ATTENTION_NAME, LAYOUT_KEYWORD
from strop.models.attention.tree import TreeLayout
from strop.models.head import LogitsHead
from strop.records import PackedBatch


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
        implementation = causal_lm.config._attn_implementation
        if implementation != ATTENTION_NAME and shares_prefixes:
            raise ValueError(f"the model must be loaded with attention {ATTENTION_NAME!r}, got {implementation!r}")
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
        hidden_NH = self._hidden_states(batch).index_select(0, batch.source_index_N)
        head = LogitsHead.from_model(self.causal_lm)
        operands = (hidden_NH.to(head.weight.dtype), head.weight, head.bias, batch.target_ids_N)
        transform = LogitTransform(temperature, head.scale, head.softcap)
        return chunked_logprobs(*operands, transform=transform, chunk=self.chunk_tokens, wanted=wanted)

    def _hidden_states(self, batch: PackedBatch) -> Tensor:
        """Returns [T, H]."""
        if self.shares_prefixes:
            layout = TreeLayout.from_batch(batch)
            return self._run(batch.token_ids_T, batch.rope_positions_T, layout)
        parts = []
        for segment in batch.segments:
            if segment.parent is not None:
                raise ValueError("this model computes every row alone: pack with share_prefix=False")
            rows = slice(segment.start, segment.stop)
            layout = TreeLayout.from_lengths([segment.num_tokens])
            parts.append(self._run(batch.token_ids_T[rows], batch.rope_positions_T[rows], layout))
        return torch.cat(parts)

    def _run(self, token_ids_T: Tensor, rope_positions_T: Tensor, layout: TreeLayout) -> Tensor:
        positions = rope_positions_T[None] if rope_positions_T.ndim == 1 else rope_positions_T.t()[:, None]
        decoder = self.causal_lm.get_decoder()  # type: ignore[no-untyped-call]
        outputs = decoder(
            input_ids=token_ids_T[None], position_ids=positions, use_cache=False, **{LAYOUT_KEYWORD: layout}
        )
        hidden_TH: Tensor = outputs.last_hidden_state[0]
        return hidden_TH
