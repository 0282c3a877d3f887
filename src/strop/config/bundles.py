"""What each named algorithm means where the config leaves a part open.

The formulas live in `strop.algorithms`, one file a name with its paper; here is the small torch-free table of their
settings, so that the checks of a run file and the algorithm itself read the same values. No bundle has a KL term unless
asked for, as has become common for verifiable rewards: a deviation where a paper has one.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from strop.config.algorithm import (
    Aggregation,
    AlgorithmConfig,
    BundleName,
    CorrectionConfig,
    GroupStd,
    KlEstimator,
    Truncation,
)


@dataclass(frozen=True, slots=True)
class ResolvedAlgorithm:
    """An algorithm with every part decided; the fields mean what they mean in `AlgorithmConfig`."""

    name: BundleName
    advantage: str = "group"
    advantage_std: GroupStd = "sample"
    discount: float = 1.0
    gae_lambda: float = 0.95
    pass_k: int = 4
    loss: str = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    positive_temperature: float = 1.0
    negative_temperature: float = 1.05
    covariance_share: float = 2e-4
    covariance_low: float = 1.0
    covariance_high: float = 5.0
    penalty: float = 1.0
    aggregation: Aggregation = "sequence_mean_token_mean"
    constant_length: int = 1
    """Divisor of `constant` aggregation; nothing reads it in the others."""
    kl_coefficient: float = 0.0
    kl_placement: Literal["loss", "reward"] = "loss"
    kl_estimator: KlEstimator = "k3"
    kl_top_k: int = 32
    kl_target: float | None = None
    kl_horizon: int = 10_000
    entropy_coefficient: float = 0.0
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)
    drop_zero_signal: bool = False
    max_sampling_rounds: int = 1
    """Rounds of sampling in one step; 1 where groups without signal are kept."""
    keep_samples: int | None = None
    truncated: Truncation = "keep"
    overlong_tokens: int = 1
    """Where the soft punishment is full; nothing reads it under another policy, nor the next one."""
    overlong_buffer_tokens: int = 1
    length_penalty: float | None = None

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


_BUNDLES = (
    ResolvedAlgorithm("grpo"),
    ResolvedAlgorithm("dr_grpo", advantage_std="none", aggregation="constant"),
    ResolvedAlgorithm("dapo", clip_high=0.28, aggregation="token_mean", drop_zero_signal=True, truncated="mask"),
    ResolvedAlgorithm("gspo", loss="gspo", clip_low=3e-4, clip_high=4e-4),
    ResolvedAlgorithm("gmpo", loss="gmpo", clip_low=0.4, clip_high=0.4),
    ResolvedAlgorithm("cispo", loss="cispo", clip_low=1.0, clip_high=4.0, aggregation="token_mean"),
    ResolvedAlgorithm("sapo", loss="sapo"),
    ResolvedAlgorithm(
        "dppo", advantage_std="none", loss="dppo_tv", clip_low=0.15, clip_high=0.15, aggregation="constant"
    ),
    ResolvedAlgorithm("clip_cov", loss="clip_cov", aggregation="token_mean"),
    ResolvedAlgorithm("kl_cov", loss="kl_cov", covariance_share=2e-3, aggregation="token_mean"),
    ResolvedAlgorithm("gpg", advantage="gpg", advantage_std="none", loss="gpg", aggregation="token_mean"),
    ResolvedAlgorithm("dro", loss="dro", penalty=0.05),
    ResolvedAlgorithm("ppo", advantage="gae", aggregation="token_mean"),
    ResolvedAlgorithm("rloo", advantage="rloo", loss="reinforce", aggregation="sequence_mean_token_sum"),
    ResolvedAlgorithm("remax", advantage="remax", loss="reinforce", aggregation="sequence_mean_token_sum"),
    ResolvedAlgorithm("reinforce_pp", advantage="reinforce_pp", aggregation="token_mean"),
    ResolvedAlgorithm("reinforce_pp_baseline", advantage="reinforce_pp_baseline", aggregation="token_mean"),
    ResolvedAlgorithm("opo", advantage="opo", loss="reinforce", aggregation="token_mean"),
    ResolvedAlgorithm("pass_at_k", advantage="pass_at_k", aggregation="token_mean"),
    ResolvedAlgorithm("gdpo", advantage="gdpo"),
    ResolvedAlgorithm("maxrl", advantage="maxrl", aggregation="token_mean"),
    ResolvedAlgorithm("otb", advantage="optimal_token_baseline", aggregation="token_mean"),
    ResolvedAlgorithm("raft", advantage="best_of_n", loss="reinforce", aggregation="token_mean"),
)

BUNDLES: dict[str, ResolvedAlgorithm] = {bundle.name: bundle for bundle in _BUNDLES}
"""Every named algorithm."""

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
