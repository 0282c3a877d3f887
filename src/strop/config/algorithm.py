"""Which algorithm, and every part of it that may be overridden."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section


class AlgorithmConfig(Section):
    """A named bundle with the defaults of its paper; None keeps the bundle's value."""

    name: Literal["grpo", "dr_grpo", "dapo"] = "grpo"
    """The bundle."""
    advantage_std: Literal["sample", "population", "none"] | None = None
    """Divides group advantages by the standard deviation with n-1, with n, or not at all."""
    clip_low: float | None = Field(default=None, gt=0, lt=1)
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float | None = Field(default=None, gt=0)
    """The ratio is clipped above at 1 + clip_high."""
    aggregation: Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"] | None = None
    """How token losses become one number."""
    constant_length: int | None = Field(default=None, ge=1)
    """Divisor of `constant` aggregation; None takes rollout.max_new_tokens."""
    kl_coefficient: float | None = Field(default=None, ge=0)
    """Weight of the KL term to the reference model in the loss; 0 loads no reference."""
    kl_estimator: Literal["k1", "k2", "k3"] | None = None
    """Estimator of the KL term."""
    entropy_coefficient: float | None = None
    """Weight of an entropy bonus."""
    drop_zero_signal: bool | None = None
    """Leaves out groups whose rewards are all equal and samples more prompts instead (dynamic sampling)."""
    max_sampling_rounds: int | None = Field(default=None, ge=1)
    """Bound on rounds of sampling in one step when groups are left out."""
    truncated: Literal["keep", "zero", "mask", "soft-overlong"] | None = None
    """Samples cut by the token budget: kept as judged, worth 0, masked, or punished softly with all overlong ones."""
    overlong_tokens: int | None = Field(default=None, ge=1)
    """With `soft-overlong`: longer samples lose 1; None takes rollout.max_new_tokens."""
    overlong_buffer_tokens: int | None = Field(default=None, ge=1)
    """With `soft-overlong`: the loss grows from 0 to 1 over so many tokens before that; None takes a fifth of it."""
