"""Which algorithm, and every part of it that may be overridden."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section

BundleName = Literal[
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "gmpo",
    "cispo",
    "sapo",
    "dppo",
    "clip_cov",
    "kl_cov",
    "gpg",
    "dro",
    "ppo",
    "rloo",
    "remax",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "opo",
    "pass_at_k",
    "gdpo",
    "maxrl",
    "otb",
    "raft",
]
AdvantageName = Literal[
    "group",
    "rloo",
    "remax",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "opo",
    "gpg",
    "pass_at_k",
    "gdpo",
    "maxrl",
    "optimal_token_baseline",
    "gae",
    "best_of_n",
]
LossName = Literal[
    "clip",
    "gspo",
    "gmpo",
    "cispo",
    "sapo",
    "dppo_tv",
    "dppo_kl",
    "clip_cov",
    "kl_cov",
    "gpg",
    "dro",
    "reinforce",
]
GroupStd = Literal["sample", "population", "none"]
Aggregation = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"]
KlEstimator = Literal["k1", "k2", "k3", "abs", "k1+", "k3+", "abs+", "full"]
Truncation = Literal["keep", "zero", "mask", "soft-overlong"]


class CorrectionConfig(Section):
    """What is done about the difference between the sampler's log-probs and the trainer's."""

    policies: Literal[2, 3] = 3
    """3: the ratio is new / old, and old / rollout is corrected apart. 2: the ratio is new / rollout, without old."""
    weight: Literal["none", "token", "sequence"] = "none"
    """Importance weights old / rollout, each token's own or the product over its sample, truncated at `weight_cap`."""
    weight_cap: float = Field(default=2.0, gt=0)
    """Where importance weights are truncated."""
    normalise: bool = False
    """Divides the weights by their mean over the mini-batch."""
    token_band: list[float] | None = Field(default=None, min_length=2, max_length=2)
    """Tokens whose old / rollout lies outside bear no loss (IcePop)."""
    geometric_band: list[float] | None = Field(default=None, min_length=2, max_length=2)
    """Samples whose geometric mean of old / rollout lies outside bear no loss."""
    sequence_band: list[float] | None = Field(default=None, min_length=2, max_length=2)
    """Samples whose product of old / rollout lies outside bear no loss."""


class AlgorithmConfig(Section):
    """A named bundle with the defaults of its paper; None keeps the bundle's value."""

    name: BundleName = "grpo"
    """The bundle."""
    advantage: str | None = None
    """How a sample is compared: a name of docs/algorithms.md, or a Python function as `my_file.py:name`."""
    advantage_std: GroupStd | None = None
    """Divides group advantages by the standard deviation with n-1, with n, or not at all."""
    discount: float | None = Field(default=None, gt=0, le=1)
    """Discount of a later reward a token, with `gae`, `reinforce_pp` and `reinforce_pp_baseline`."""
    gae_lambda: float | None = Field(default=None, ge=0, le=1)
    """GAE's exponential weight of longer returns."""
    pass_k: int | None = Field(default=None, ge=1)
    """With `pass_at_k`: how many samples share the reward of their best."""
    loss: str | None = None
    """The policy loss: a name of docs/algorithms.md, or a Python function as `my_file.py:name`."""
    clip_low: float | None = Field(default=None, gt=0)
    """The ratio is clipped below at 1 - clip_low; at e^-clip_low with `gmpo`. With `dppo`, a bound on divergence."""
    clip_high: float | None = Field(default=None, gt=0)
    """The ratio is clipped above at 1 + clip_high; at e^clip_high with `gmpo`. With `dppo`, a bound on divergence."""
    dual_clip: float | None = Field(default=None, gt=1)
    """With `clip`: bounds the loss of tokens of negative advantage at dual_clip times the advantage; None does not."""
    positive_temperature: float | None = Field(default=None, gt=0)
    """With `sapo`: steepness of the gate where the advantage is positive."""
    negative_temperature: float | None = Field(default=None, gt=0)
    """With `sapo`: steepness of the gate where the advantage is negative."""
    covariance_share: float | None = Field(default=None, gt=0, le=1)
    """With `clip_cov` and `kl_cov`: share of the mini-batch's tokens that are treated."""
    covariance_low: float | None = None
    """With `clip_cov`: tokens are drawn among those with a covariance above this."""
    covariance_high: float | None = None
    """With `clip_cov`: tokens are drawn among those with a covariance below this."""
    penalty: float | None = Field(default=None, gt=0)
    """With `kl_cov` the weight of its KL penalty, with `dro` that of its quadratic term."""
    aggregation: Aggregation | None = None
    """How token losses become one number."""
    constant_length: int | None = Field(default=None, ge=1)
    """Divisor of `constant` aggregation; None takes rollout.max_new_tokens."""
    kl_coefficient: float | None = Field(default=None, ge=0)
    """Weight of the KL term to the reference model; 0 loads no reference."""
    kl_placement: Literal["loss", "reward"] | None = None
    """Where the KL term goes: added to the loss, or taken off each token's reward."""
    kl_estimator: KlEstimator | None = None
    """Estimator of the KL term; a `+` takes its value and the gradient of k2."""
    kl_top_k: int | None = Field(default=None, ge=1)
    """With the estimator `full`: how many of the reference's most likely tokens are told apart."""
    kl_target: float | None = Field(default=None, gt=0)
    """Adapts kl_coefficient so that the KL a token stays near this; None keeps it fixed."""
    kl_horizon: int | None = Field(default=None, ge=1)
    """With kl_target: over so many samples the coefficient changes by a factor of at most 1.22."""
    entropy_coefficient: float | None = None
    """Weight of an entropy bonus."""
    correction: CorrectionConfig = Field(default_factory=CorrectionConfig)
    """What is done about the difference between sampler and trainer; nothing by default."""
    drop_zero_signal: bool | None = None
    """Leaves out groups whose rewards are all equal and samples more prompts instead (dynamic sampling)."""
    max_sampling_rounds: int | None = Field(default=None, ge=1)
    """Bound on rounds of sampling in one step when groups are left out."""
    keep_samples: int | None = Field(default=None, ge=2)
    """Trains on so many samples a group, those of highest and lowest reward; None trains on all."""
    truncated: Truncation | None = None
    """Samples cut by the token budget: kept as judged, worth 0, masked, or punished softly with all overlong ones."""
    overlong_tokens: int | None = Field(default=None, ge=1)
    """With `soft-overlong`: longer samples lose 1; None takes rollout.max_new_tokens."""
    overlong_buffer_tokens: int | None = Field(default=None, ge=1)
    """With `soft-overlong`: the loss grows from 0 to 1 over so many tokens before that; None takes a fifth of it."""
    length_penalty: float | None = Field(default=None, gt=0)
    """Takes this off the reward of the longest sample of a group, and less of shorter ones; None does not."""
