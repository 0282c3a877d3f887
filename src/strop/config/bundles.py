"""What each named algorithm means where the config leaves a part open.

The formulas live in `strop.algorithms`; here is the small torch-free table of their settings, so that the
checks of a run file and the algorithm itself read the same values.

- grpo: Shao et al. 2024, arXiv:2402.03300. Advantages are divided by the group's standard deviation (n-1),
  the loss is the mean over sequences of each sequence's token mean. Deviation: no KL term unless asked for
  (the paper uses 0.04), as has become common for verifiable rewards.
- dr_grpo: Liu et al. 2025, arXiv:2503.20783. No division by the standard deviation, and a constant divisor
  instead of the sequence length, which is the token budget of a sample.
- dapo: Yu et al. 2025, arXiv:2503.14476. A higher upper clip, the mean over all tokens, groups without signal
  are replaced, no KL term. Deviation: truncated samples are masked, the paper's overlong filtering; its soft
  length punishment instead is `truncated = "soft-overlong"`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from strop.config.algorithm import AlgorithmConfig


@dataclass(frozen=True, slots=True)
class ResolvedAlgorithm:
    """An algorithm with every part decided; the fields mean what they mean in `AlgorithmConfig`."""

    name: Literal["grpo", "dr_grpo", "dapo"]
    advantage_std: Literal["sample", "population", "none"] = "sample"
    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregation: Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"] = (
        "sequence_mean_token_mean"
    )
    constant_length: int = 1
    """Divisor of `constant` aggregation; nothing reads it in the others."""
    kl_coefficient: float = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coefficient: float = 0.0
    drop_zero_signal: bool = False
    max_sampling_rounds: int = 1
    """Rounds of sampling in one step; 1 where groups without signal are kept."""
    truncated: Literal["keep", "zero", "mask", "soft-overlong"] = "keep"
    overlong_tokens: int = 1
    """Where the soft punishment is full; nothing reads it under another policy, nor the next one."""
    overlong_buffer_tokens: int = 1

    @property
    def truncation(self) -> str:
        """The policy for truncated samples in words."""
        match self.truncated:
            case "keep":
                return "kept, trained on as judged"
            case "zero":
                return "zero, reward 0"
            case "mask":
                return "mask, without loss"
            case "soft-overlong":
                start = self.overlong_tokens - self.overlong_buffer_tokens
                return f"soft-overlong, any sample loses from 0 at {start} tokens to 1 at {self.overlong_tokens}"


BUNDLES: dict[str, ResolvedAlgorithm] = {
    "grpo": ResolvedAlgorithm("grpo"),
    "dr_grpo": ResolvedAlgorithm("dr_grpo", advantage_std="none", aggregation="constant"),
    "dapo": ResolvedAlgorithm(
        "dapo", clip_high=0.28, aggregation="token_mean", drop_zero_signal=True, truncated="mask"
    ),
}

DEFAULT_SAMPLING_ROUNDS = 10
"""Rounds of sampling in one step where groups are left out and the config names no bound."""

OVERLONG_BUFFER_SHARE = 5
"""The paper's soft punishment covers the last fifth of the longest sample (4096 of 20480 tokens)."""


def resolve_algorithm(config: AlgorithmConfig, max_new_tokens: int) -> ResolvedAlgorithm:
    """Returns the bundle with the overrides of the config; `max_new_tokens` is the divisor of last resort."""
    given = {name: value for name in AlgorithmConfig.model_fields if (value := getattr(config, name)) is not None}
    resolved = replace(BUNDLES[config.name], **given)
    if config.constant_length is None:
        resolved = replace(resolved, constant_length=max_new_tokens)
    if config.overlong_tokens is None:
        resolved = replace(resolved, overlong_tokens=max_new_tokens)
    if config.overlong_buffer_tokens is None:
        resolved = replace(resolved, overlong_buffer_tokens=max(1, resolved.overlong_tokens // OVERLONG_BUFFER_SHARE))
    if resolved.drop_zero_signal and config.max_sampling_rounds is None:
        resolved = replace(resolved, max_sampling_rounds=DEFAULT_SAMPLING_ROUNDS)
    return resolved
