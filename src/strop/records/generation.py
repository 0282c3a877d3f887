"""What is asked of a rollout engine, and what it answers."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from strop.records.samples import FinishState, Row


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. The log-probs reported are those of exactly this distribution."""

    max_new_tokens: int
    temperature: float = 1.0
    """0 means greedy; the log-probs reported are then those at temperature 1."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means off."""
    stop_token_ids: frozenset[int] = frozenset()
    """A sampled stop token ends the sample, is kept in `token_ids` and is trained."""
    stop_strings: tuple[str, ...] = ()
    """Text that ends the sample as soon as the decoded completion contains it; its tokens are kept."""
    ignore_stop: bool = False
    """Benchmarks only: go on to `max_new_tokens` whatever is sampled."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if self.temperature < 0:
            raise ValueError(f"temperature must be 0 (greedy) or positive, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or positive, got {self.top_k}")


@dataclass(frozen=True, slots=True)
class StreamKey:
    """Names the random stream of one sample; the token index is the counter, so there is no state to save."""

    seed: int
    prompt_id: str
    visit: int
    sample_index: int
    purpose: str = "train"
    """Evaluation uses "eval", so that it never shares a stream with training."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine sampled for one sample of a group, whole or so far."""

    token_ids: NDArray[np.int64]
    """[C] sampled ids; ends with the stop token when one was sampled."""
    logprobs: NDArray[np.float32]
    """[C] log-probs under the sampled distribution (temperature, top-k, top-p applied)."""
    policy_versions: NDArray[np.int64]
    """[C] the version of the weights that sampled each token."""
    finish: FinishState
    error: str | None = None
    """Why the sample failed, when `finish` is FAILED."""

    def as_row(self, prompt_token_ids: NDArray[np.int64]) -> Row:
        """Returns the token-exact row of prompt and completion; the prompt bears no loss."""
        prompt = len(prompt_token_ids)
        return Row(
            token_ids=np.concatenate([prompt_token_ids, self.token_ids]),
            loss_mask=np.arange(prompt + len(self.token_ids)) >= prompt,
            rollout_logprobs=np.concatenate([np.zeros(prompt, np.float32), self.logprobs]),
            policy_versions=np.concatenate([np.full(prompt, -1, np.int64), self.policy_versions]),
        )


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A prompt to be completed once per stream; the prompt is computed once for the whole group.

    `partial[i]`, where given, is an aborted completion that stream `i` goes on from: its tokens are
    kept, the remaining budget is what `sampling.max_new_tokens` leaves.
    """

    prompt_token_ids: NDArray[np.int64]
    streams: tuple[StreamKey, ...]
    sampling: SamplingParams
    partial: tuple[Completion | None, ...] = field(default=())
    budgets: tuple[int, ...] = field(default=())
    """Where given, the most tokens of each stream, instead of `sampling.max_new_tokens` for all."""

    def __post_init__(self) -> None:
        if len(self.prompt_token_ids) == 0:
            raise ValueError("a prompt must have at least one token, got none")
        if not self.streams:
            raise ValueError("a group request must name at least one stream, got none")
        if self.partial and len(self.partial) != len(self.streams):
            raise ValueError(f"partial must have one entry a stream ({len(self.streams)}), got {len(self.partial)}")
        if self.budgets and (len(self.budgets) != len(self.streams) or min(self.budgets) < 1):
            raise ValueError(f"budgets must be one positive number a stream ({len(self.streams)}), got {self.budgets}")
