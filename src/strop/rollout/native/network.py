"""The policy as the engine runs it: flat tokens to hidden states, hidden states to logits, and its weights."""

from typing import Any, cast

import torch
from transformers import PreTrainedModel

from strop.errors import ModelError
from strop.models.attention import (
    ATTENTION_NAME,
    LAYOUT_KEYWORD,
    AttentionCall,
    AttentionLayout,
    TreeLayout,
)
from strop.models.head import LogitsHead
from strop.rollout.native.weights import WeightTable


class OwnedModel:
    """A Hugging Face model that the engine owns; runs without gradient."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Takes the model over: it is put into evaluation mode, and its weights ask for no gradient."""
        self.model = cast(Any, model)  # transformers leaves these methods untyped
        self.model.eval()
        self.model.requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        device: torch.device = self.model.device
        return device

    @property
    def vocabulary_size(self) -> int:
        """V, the token ids that may be fed in."""
        return int(self.model.get_input_embeddings().weight.shape[0])


class Network(OwnedModel):
    """A decoder that runs over flat tokens, without transformers' cache."""

    def __init__(self, model: PreTrainedModel, *, packed_linears: bool) -> None:
        """Takes the model over; its linear layers may be replaced by packed ones.

        Raises ModelError where the engine cannot run it.
        """
        _require_attention(model)
        super().__init__(model)
        head = LogitsHead.from_model(model)
        self._scale, self._softcap = head.scale, head.softcap
        del head  # holds the plain weight, which packing gives up
        self.weights = WeightTable(model, packed_linears=packed_linears)
        self._decoder: Any = self.model.get_decoder()
        self._head: Any = self.model.get_output_embeddings()
        self._require_attention_in_every_layer()

    @property
    def max_length(self) -> int:
        """The model's own maximum of prompt plus completion tokens."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    @torch.inference_mode()
    def hidden(self, token_ids_T: torch.Tensor, positions_T: torch.Tensor, layout: AttentionLayout) -> torch.Tensor:
        """Returns [T, H] last hidden states."""
        outputs = self._decoder(
            input_ids=token_ids_T[None], position_ids=positions_T[None], use_cache=False, **{LAYOUT_KEYWORD: layout}
        )
        hidden: torch.Tensor = outputs.last_hidden_state[0]
        return hidden

    @torch.inference_mode()
    def logits(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Returns [N, V] logits at temperature 1."""
        logits_NV: torch.Tensor = self._head(hidden_NH)
        if self._scale != 1.0:
            logits_NV = logits_NV * self._scale
        if self._softcap is not None:
            logits_NV = torch.tanh(logits_NV / self._softcap) * self._softcap
        return logits_NV

    def _require_attention_in_every_layer(self) -> None:
        """Refuses models with layers that keep a state of their own: their past is not in this engine's cache."""
        tokens_T = torch.zeros(2, dtype=torch.int64, device=self.device)
        counter = _CallCounter(TreeLayout.from_lengths([2]))
        self.hidden(tokens_T, torch.arange(2, device=self.device), counter)
        num_layers = self.model.config.get_text_config().num_hidden_layers
        if counter.layers != set(range(num_layers)):
            others = sorted(set(range(num_layers)) - counter.layers)
            raise ModelError(
                f"every layer must be softmax attention, got layers {others} of {self.model.config.model_type} without",
                "The native engine cannot sample from it; choose a model with softmax attention in every layer.",
            )


class _CallCounter:
    """Passes attention on and notes which layers asked."""

    def __init__(self, inner: AttentionLayout) -> None:
        self._inner = inner
        self.layers: set[int] = set()

    def attend(self, call: AttentionCall) -> torch.Tensor:
        self.layers.add(call.layer_index)
        return self._inner.attend(call)


def _require_attention(model: PreTrainedModel) -> None:
    if model.config._attn_implementation != ATTENTION_NAME:
        raise ModelError(
            f"the attention implementation must be {ATTENTION_NAME!r}, got {model.config._attn_implementation!r} "
            f"in {model.config.get_text_config().model_type}",
            f"Load the model with attn_implementation={ATTENTION_NAME!r} after register_attention().",
        )
