"""A sample is what bears a reward: token-exact rows, how it ended, and what it earned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.records.prompts import Prompt


class FinishState(StrEnum):
    """How sampling ended, as the engine reports it; never guessed from text."""

    STOPPED = "stopped"
    LENGTH = "length"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Row:
    """One token sequence as the policy saw it. Every array has the length of `token_ids`.

    Where `loss_mask` is false (prompt, tool output), `rollout_logprobs` is 0 and `policy_versions` -1.
    """

    token_ids: NDArray[np.int64]
    """[T]"""
    loss_mask: NDArray[np.bool_]
    """[T] true where the policy sampled the token."""
    rollout_logprobs: NDArray[np.float32]
    """[T] the sampler's log-probs."""
    policy_versions: NDArray[np.int64]
    """[T] which weights sampled the token."""
    advantages: NDArray[np.float32] | None = None
    """[T] set by the algorithm, None before."""
    fields: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """What a step worked out for the row before its update (old log-probs, values, a teacher's log-probs), by the names
    of `records.schema.ROW_FIELDS`: [T] or [T, K], 0 where the policy did not sample the token."""

    def __post_init__(self) -> None:
        num_tokens = len(self.token_ids)
        own = {name: getattr(self, name) for name in ("loss_mask", "rollout_logprobs", "policy_versions", "advantages")}
        for name, values in {**own, **self.fields}.items():
            if values is not None and len(values) != num_tokens:
                raise ValueError(f"{name} must have one entry a token ({num_tokens}), got {len(values)}")
        if num_tokens and self.loss_mask[0]:
            raise ValueError("the first token of a row must not bear loss: nothing predicts it")

    def with_fields(self, **fields: NDArray[Any]) -> "Row":
        """Returns the row with more fields."""
        return replace(self, fields={**self.fields, **fields})

    @property
    def num_tokens(self) -> int:
        """The length of the row."""
        return len(self.token_ids)

    @property
    def num_sampled_tokens(self) -> int:
        """How many tokens the policy sampled in this row."""
        return int(self.loss_mask.sum())


@dataclass(frozen=True, slots=True)
class RewardPart:
    """What one reward function said of one sample."""

    value: float | None
    """None: invalid (the function returned None, raised, or gave a non-finite number)."""
    weight: float = 1.0
    error: str | None = None
    """Row, exception and traceback where the function raised."""
    seconds: float = field(default=0.0, compare=False)
    """How long the call took that judged it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One attempt at a prompt: its rows, how it ended, its reward."""

    index: int
    """Its place in the group."""
    rows: tuple[Row, ...]
    finish: FinishState
    reward: float | None = None
    """None while unrewarded and where invalid: never 0 for "we do not know"."""
    reward_parts: dict[str, RewardPart] = field(default_factory=dict)
    error: str | None = None

    @property
    def num_sampled_tokens(self) -> int:
        """How many tokens of all rows the policy sampled."""
        return sum(row.num_sampled_tokens for row in self.rows)

    @property
    def is_truncated(self) -> bool:
        """Whether the sample was cut by its token budget."""
        return self.finish is FinishState.LENGTH

    def with_token_advantage(self, advantage: float) -> "Sample":
        """Returns the sample with `advantage` on every sampled token and 0 elsewhere."""
        return self.with_advantages([np.where(row.loss_mask, advantage, 0.0) for row in self.rows])

    def with_advantages(self, advantages: Sequence[NDArray[np.floating[Any]]]) -> "Sample":
        """Returns the sample with the advantages of each row's tokens, [T] each."""
        pairs = zip(self.rows, advantages, strict=True)
        return replace(self, rows=tuple(replace(row, advantages=values.astype(np.float32)) for row, values in pairs))


@dataclass(frozen=True, slots=True)
class Group:
    """One prompt and its samples: the unit that is rewarded, filtered, requeued and counted."""

    prompt: Prompt
    samples: tuple[Sample, ...]
    baseline: Sample | None = None
    """What the policy says greedily, for algorithms that compare with it; never trained on."""

    @property
    def valid_rewards(self) -> list[float]:
        """The rewards of the samples that have one."""
        return [sample.reward for sample in self.samples if sample.reward is not None]

    @property
    def has_signal(self) -> bool:
        """Whether the valid rewards differ: decided by max - min, since a float32 std of equal numbers is not 0."""
        rewards = self.valid_rewards
        return len(rewards) > 1 and max(rewards) - min(rewards) > 0

    def with_samples(self, samples: Sequence[Sample]) -> "Group":
        """Returns the group with other samples."""
        return replace(self, samples=tuple(samples))
