"""What every engine asks of tokens, and of itself before it serves."""

import numpy as np
from numpy.typing import NDArray

from strop.rollout.errors import RequestRefusedError


def require_tokens(token_ids: NDArray[np.int64], vocabulary_size: int, what: str) -> None:
    """Raises RequestRefusedError where there are no tokens, or one that the model does not have."""
    if len(token_ids) == 0:
        raise RequestRefusedError(f"{what} must have at least one token, got none")
    if token_ids.min() < 0 or token_ids.max() >= vocabulary_size:
        raise RequestRefusedError(
            f"{what} must have token ids from 0 to {vocabulary_size - 1}, got {token_ids.min()} to {token_ids.max()}",
            "Use the tokenizer of this model.",
        )


def require_whole_weights(version: int | None) -> None:
    """Raises RuntimeError where an engine holds no weights of one version."""
    if version is None:
        raise RuntimeError(
            "the weights were given back, or are a mixture after a failed publication: receive a full set first"
        )
