"""Models with layers that carry a state (linear attention, state space), run through transformers' own cache.

    [B, T] tokens, RowCache or none --decoder--> last hidden states --head--> [B, V] logits, RowCache of T more tokens

All rows of a call have one length, so nothing is padded: padding would enter the state. The cache is the one that
transformers makes for the model; attention layers, if any, run its eager attention. Layers stay as they are, because
such models read weights of their linear layers directly.
"""

import inspect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

from strop.errors import ModelError
from strop.models.head import LogitsHead
from strop.rollout.native.network import OwnedModel
from strop.rollout.native.scoring import LOGITS_ROWS, target_logprobs
from strop.rollout.native.weights import WeightTable

PLAIN_ATTENTION = "eager"
"""The one implementation of transformers that honours soft-caps and sinks in every model."""
CACHE_KEYWORDS = ("past_key_values", "cache_params")
"""How decoders call their cache."""


@dataclass(frozen=True, slots=True)
class RowCache:
    """What a model remembers of B sequences of one length."""

    cache: Cache
    num_tokens: int
    """The length of each."""

    def select_rows(self, rows: Sequence[int]) -> None:
        """Makes row i a copy of what is row `rows[i]` now; there may be fewer or more of them than before."""
        self.cache.reorder_cache(cast(torch.LongTensor, torch.tensor(rows)))

    @property
    def num_bytes(self) -> int:
        """The memory that keys, values and states take."""
        return sum(tensor.nbytes for tensor in self._tensors() if tensor is not None)

    def _tensors(self) -> Iterator[torch.Tensor | None]:
        for layer in self.cache.layers:
            if isinstance(layer, DynamicLayer):
                yield from (layer.keys, layer.values)
            if isinstance(layer, LinearAttentionCacheLayerMixin):
                yield from (*layer.conv_states.values(), *layer.recurrent_states.values())


class RecurrentNetwork(OwnedModel):
    """A decoder that runs over rows of one length, with transformers' cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Takes the model over. Raises ModelError where its cache is not one of transformers' common ones."""
        super().__init__(model)
        self.model.set_attn_implementation(PLAIN_ATTENTION)
        self.weights = WeightTable(model, packed_linears=False)
        self._head = LogitsHead.from_model(model)
        self._decoder: Any = self.model.get_decoder()
        self._keywords = frozenset(inspect.signature(self._decoder.forward).parameters)
        self._cache_keyword = _cache_keyword(self._decoder, self._keywords)

    @property
    def max_length(self) -> int | None:
        """The model's own maximum of prompt plus completion tokens; None where its config says none."""
        length = self.model.config.get_text_config().to_dict().get("max_position_embeddings")
        return None if length is None else int(length)

    @torch.inference_mode()
    def advance(self, token_ids_BT: torch.Tensor, past: RowCache | None) -> tuple[torch.Tensor, RowCache]:
        """Feeds each row T tokens behind its past, or from the start; returns [B, V] logits and the new past.

        The past that is handed in is used up: go on with the one that is returned.
        """
        start = 0 if past is None else past.num_tokens
        stop = start + token_ids_BT.shape[1]
        keywords: dict[str, Any] = {self._cache_keyword: None if past is None else past.cache}
        if "position_ids" in self._keywords:
            keywords["position_ids"] = torch.arange(start, stop, device=self.device).expand_as(token_ids_BT)
        outputs = self._decoder(input_ids=token_ids_BT, use_cache=True, **keywords)
        cache = outputs.get(self._cache_keyword)
        if not isinstance(cache, Cache):
            raise ModelError(
                f"{type(self._decoder).__name__} must give its cache back as one of transformers' Cache classes, "
                f"got {type(cache).__name__}",
                "The native engine cannot sample from it; choose another model.",
            )
        return self.logits(outputs.last_hidden_state[:, -1]), RowCache(cache, stop)

    @torch.inference_mode()
    def hidden(self, token_ids_T: torch.Tensor) -> torch.Tensor:
        """Returns [T, H] last hidden states of one whole sequence, computed without any cache."""
        outputs = self._decoder(input_ids=token_ids_T[None], use_cache=False)
        hidden_TH: torch.Tensor = outputs.last_hidden_state[0]
        return hidden_TH

    @torch.inference_mode()
    def logits(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Returns [N, V] logits at temperature 1."""
        return self._head.logits(hidden_NH)

    def score(self, sequences: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Returns for each sequence of n tokens n - 1 float32 log-probs at temperature 1, without any cache."""
        return [self._score_one(sequence) for sequence in sequences]

    @torch.inference_mode()
    def _score_one(self, sequence: NDArray[np.int64]) -> NDArray[np.float32]:
        if len(sequence) == 1:
            return np.zeros(0, dtype=np.float32)
        token_ids_T = torch.from_numpy(sequence.astype(np.int64)).to(self.device)
        hidden_parts = torch.split(self.hidden(token_ids_T[:-1]), LOGITS_ROWS)
        target_parts = torch.split(token_ids_T[1:], LOGITS_ROWS)
        parts = [target_logprobs(self, *part) for part in zip(hidden_parts, target_parts, strict=True)]
        return torch.cat(parts).cpu().numpy()


def _cache_keyword(decoder: object, keywords: Collection[str]) -> str:
    found = [keyword for keyword in CACHE_KEYWORDS if keyword in keywords]
    if not found:
        raise ModelError(
            f"{type(decoder).__name__} must take its cache as one of {list(CACHE_KEYWORDS)}, got neither",
            "The native engine cannot sample from it; choose another model.",
        )
    return found[0]
