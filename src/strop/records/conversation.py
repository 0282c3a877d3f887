"""How a conversation goes on behind a sampled turn: by further tokens, or as a row of its own."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.records.prompts import Message


@dataclass(frozen=True, slots=True)
class Continuation:
    """What follows a sampled turn, up to where the policy answers again."""

    messages: tuple[Message, ...]
    """The whole conversation: the sampled turn and what was said to it included."""
    token_ids: NDArray[np.int64]
    """[A] the tokens behind those that the policy saw and sampled; where it forks, the whole new prompt."""
    forks: bool
    """Whether the chat template writes what was said before in another way (without earlier thoughts, say), so that the
    policy sees another beginning from here on."""
