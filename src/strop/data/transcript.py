"""Conversations of several turns as token-exact rows.

prompt --engine--> turn --Renderer.extend--> tokens of what was said to it --engine--> turn ...
                                 \\--(the template rewrites what came before)--> a row of its own
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.records import Completion, Continuation, Row


class Transcript:
    """A conversation as token-exact rows: what was sampled is kept as it was sampled, and never encoded again.

    Without a fork there is one row: prompt, turn, what was said to it, turn, ... with loss on the turns. Each fork
    closes the row and begins another with the prompt as the template now writes it.
    """

    def __init__(self, prompt_token_ids: NDArray[np.int64]) -> None:
        self._closed: list[Row] = []
        self._open = [_Span.unsampled(prompt_token_ids)]

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """[T] what the policy sees before its next turn."""
        return np.concatenate([span.token_ids for span in self._open])

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows in which the policy sampled anything, in order."""
        return tuple(row for row in (*self._closed, _row(self._open)) if row.num_sampled_tokens)

    def sampled(self, completion: Completion) -> None:
        """Takes a turn of the policy as the engine gave it."""
        self._open.append(_Span(completion.token_ids, completion.logprobs, completion.policy_versions, True))

    def continued(self, continuation: Continuation) -> None:
        """Takes what follows the turn."""
        if continuation.forks:
            self._closed.append(_row(self._open))
            self._open = []
        self._open.append(_Span.unsampled(continuation.token_ids))


@dataclass(frozen=True, slots=True)
class _Span:
    """Tokens in a run that were all sampled, or all given."""

    token_ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    policy_versions: NDArray[np.int64]
    is_sampled: bool

    @classmethod
    def unsampled(cls, token_ids: NDArray[np.int64]) -> "_Span":
        count = len(token_ids)
        return cls(token_ids, np.zeros(count, np.float32), np.full(count, -1, np.int64), False)


def _row(spans: Sequence[_Span]) -> Row:
    return Row(
        token_ids=np.concatenate([span.token_ids for span in spans]),
        loss_mask=np.concatenate([np.full(len(span.token_ids), span.is_sampled) for span in spans]),
        rollout_logprobs=np.concatenate([span.logprobs for span in spans]),
        policy_versions=np.concatenate([span.policy_versions for span in spans]),
    )
