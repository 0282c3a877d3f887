"""Log-probs of whole sequences, without any cache: what the proof of weight sync and reference models ask for."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from strop.models.attention import TreeLayout
from strop.rollout.native.network import Network

SCORE_TOKENS: Final = 4096
"""Tokens in one forward pass; a longer sequence has a pass of its own."""
LOGITS_ROWS: Final = 256
"""Positions whose logits exist at the same time."""


class HasLogits(Protocol):
    """Turns hidden states into logits."""

    def logits(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Returns [N, V] logits at temperature 1."""


@torch.inference_mode()
def score_sequences(network: Network, sequences: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
    """Returns for each sequence of n tokens n - 1 float32 log-probs at temperature 1."""
    scores: list[NDArray[np.float32]] = []
    for chunk in _chunks(sequences):
        if max(map(len, chunk)) == 1:
            scores.extend(np.zeros(0, dtype=np.float32) for _ in chunk)
            continue
        scores.extend(_score_packed(network, chunk))
    return scores


def _chunks(sequences: Sequence[NDArray[np.int64]]) -> Iterator[list[NDArray[np.int64]]]:
    chunk: list[NDArray[np.int64]] = []
    for sequence in sequences:
        if chunk and sum(map(len, chunk)) + len(sequence) > SCORE_TOKENS:
            yield chunk
            chunk = []
        chunk.append(sequence)
    if chunk:
        yield chunk


def _score_packed(network: Network, sequences: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
    lengths = [len(sequence) for sequence in sequences]
    token_ids_T = torch.from_numpy(np.concatenate(sequences).astype(np.int64)).to(network.device)
    layout = TreeLayout.from_lengths(lengths)
    hidden_TH = network.hidden(token_ids_T, layout.ordinals().to(network.device), layout)
    is_last = np.zeros(len(token_ids_T), dtype=np.bool_)
    is_last[np.cumsum(lengths) - 1] = True
    sources_N = torch.from_numpy(np.flatnonzero(~is_last)).to(network.device)
    parts = torch.split(sources_N, LOGITS_ROWS)
    logprobs_N = [target_logprobs(network, hidden_TH[part], token_ids_T[part + 1]) for part in parts]
    flat = torch.cat(logprobs_N).cpu().numpy()
    return np.split(flat, np.cumsum([length - 1 for length in lengths])[:-1])


def target_logprobs(network: HasLogits, hidden_NH: torch.Tensor, target_ids_N: torch.Tensor) -> torch.Tensor:
    """Returns [N] float32 log-probs of the targets at temperature 1; all [N, V] logits exist at the same time."""
    logits_NV = network.logits(hidden_NH).float()
    chosen_N = logits_NV.gather(1, target_ids_N[:, None])[:, 0]
    return chosen_N - torch.logsumexp(logits_NV, dim=-1)
