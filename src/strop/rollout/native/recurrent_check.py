"""The check at the start: does a model, fed token by token through its cache, compute what it computes without one?

Two sequences begin with the same tokens. The beginning is computed once and its row of the cache copied, both go on
token by token, then one leaves: all that sampling does to a cache. Each result is held against the whole sequence.
"""

from typing import Final

import torch

from strop.errors import ModelError
from strop.models.attention.self_check import MAX_RELATIVE_DIFFERENCE, MAX_RELATIVE_DIFFERENCE_LOW_PRECISION
from strop.rollout.native.recurrent import RecurrentNetwork

PROMPT_TOKENS: Final = 12
TOGETHER_TOKENS: Final = 4
ALONE_TOKENS: Final = 2


def check_cache(network: RecurrentNetwork) -> None:
    """Raises ModelError where cached logits differ from those of whole sequences."""
    sequences_2T = _sequences(network)
    whole_NV = torch.cat(_whole(network, sequences_2T))
    try:
        cached_NV = torch.cat(_together(network, sequences_2T))
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(
            f"the cache of {type(network.model).__name__} must let its rows be copied and dropped, got: {error}",
            "The native engine cannot sample from it; choose another model.",
        ) from error
    cached, whole = (logits.double() - logits.double().mean(-1, keepdim=True) for logits in (cached_NV, whole_NV))
    relative = float((cached - whole).norm() / whole.norm().clamp_min(torch.finfo(torch.float64).tiny))
    bound = MAX_RELATIVE_DIFFERENCE.get(cached_NV.dtype, MAX_RELATIVE_DIFFERENCE_LOW_PRECISION)
    if not relative <= bound:
        raise ModelError(
            f"logits of {type(network.model).__name__} through its cache must equal those without it within {bound:g} "
            f"(relative norm), got {relative:.3g}",
            "The native engine cannot sample from it; choose another model.",
        )


def _sequences(network: RecurrentNetwork) -> torch.Tensor:
    """Returns [2, T] random tokens that begin alike."""
    generator = torch.Generator().manual_seed(0)
    num_tokens = PROMPT_TOKENS + TOGETHER_TOKENS + ALONE_TOKENS
    sequences_2T = torch.randint(network.vocabulary_size, (2, num_tokens), generator=generator)
    sequences_2T[1, :PROMPT_TOKENS] = sequences_2T[0, :PROMPT_TOKENS]
    return sequences_2T.to(network.device)


def _together(network: RecurrentNetwork, sequences_2T: torch.Tensor) -> list[torch.Tensor]:
    """Returns the logits behind the beginning, of both sequences and of the one that stays, each [rows, V]."""
    first_1V, past = network.advance(sequences_2T[:1, :PROMPT_TOKENS], None)
    found = [first_1V]
    past.select_rows([0, 0])
    rows = sequences_2T[:, PROMPT_TOKENS:]
    for place in range(rows.shape[1]):
        if place == TOGETHER_TOKENS:
            past.select_rows([1])
            rows = rows[1:]
        logits_BV, past = network.advance(rows[:, place : place + 1], past)
        found.append(logits_BV)
    return found


def _whole(network: RecurrentNetwork, sequences_2T: torch.Tensor) -> list[torch.Tensor]:
    """Returns the same logits, in the same order, of whole sequences."""
    logits_2TV = [network.logits(network.hidden(sequence_T)) for sequence_T in sequences_2T]
    beginning = logits_2TV[0][PROMPT_TOKENS - 1 : PROMPT_TOKENS]
    alone_from = PROMPT_TOKENS + TOGETHER_TOKENS
    together = torch.stack([logits_TV[PROMPT_TOKENS:alone_from] for logits_TV in logits_2TV], dim=1)
    return [beginning, together.flatten(0, 1), logits_2TV[1][alone_from:]]
