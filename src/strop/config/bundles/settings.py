"""What an algorithm is made of, every part decided: the record that checks and algorithms read."""

from dataclasses import dataclass, field
from typing import Literal

from strop.config.algorithm import Aggregation, BundleName, CorrectionConfig, GroupStd, KlEstimator, Truncation


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
