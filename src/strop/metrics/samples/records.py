"""What is kept of a sample: plain values and numpy arrays."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One token sequence, prompt included. Every array has T entries."""

    token_ids: NDArray[np.int64]
    """[T]"""
    loss_mask: NDArray[np.bool_]
    """[T] true where the policy sampled the token."""
    logprobs: NDArray[np.float32]
    """[T] the sampler's log-probs, 0 where not sampled. The store keeps 4 decimals."""
    versions: NDArray[np.int64]
    """[T] which weights sampled the token, -1 where not sampled."""
    advantages: NDArray[np.float32] | None = None
    """[T] 0 where not sampled; None where none was computed. The store keeps 6 decimals."""

    def __post_init__(self) -> None:
        num_tokens = len(self.token_ids)
        for name in ("loss_mask", "logprobs", "versions", "advantages"):
            values = getattr(self, name)
            if values is not None and len(values) != num_tokens:
                raise ValueError(f"{name} must have one entry a token ({num_tokens}), got {len(values)}")


@dataclass(frozen=True, slots=True)
class PartRecord:
    """What one reward function said of a sample."""

    value: float | None
    """None where invalid."""
    weight: float = 1.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One attempt at the prompt."""

    index: int
    """Its place in the group."""
    finish: str
    """stopped, length, aborted or failed."""
    reward: float | None
    """None where invalid."""
    text: str
    """The completion as a person reads it."""
    rows: tuple[RowRecord, ...]
    parts: dict[str, PartRecord] = field(default_factory=dict)
    """By the name of the reward function."""
    error: str | None = None

    @property
    def num_sampled_tokens(self) -> int:
        """How many tokens of all rows the policy sampled."""
        return sum(int(row.loss_mask.sum()) for row in self.rows)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One prompt and its samples."""

    prompt_id: str
    visit: int
    prompt_text: str
    prompt_ids: NDArray[np.int64]
    """[P]"""
    samples: tuple[SampleRecord, ...]
    task: str = ""
    trained: bool = True
    """False where the algorithm left the group out, such as one without signal."""
