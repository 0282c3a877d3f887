"""The whole config: one TOML file, one model."""

from pydantic import Field

from strop.config.algorithm import AlgorithmConfig
from strop.config.base import Section
from strop.config.checkpoint import CheckpointConfig
from strop.config.cluster import ClusterConfig
from strop.config.critic import CriticConfig
from strop.config.data import DataConfig
from strop.config.distillation import DistillationConfig
from strop.config.evaluation import EvaluationConfig
from strop.config.metrics import MetricsConfig
from strop.config.model import ModelConfig
from strop.config.rewards import RewardConfig
from strop.config.rollout import RolloutConfig
from strop.config.run import RunConfig
from strop.config.trainer import TrainerConfig
from strop.config.training import TrainingConfig
from strop.config.weight_sync import WeightSyncConfig


class Config(Section):
    """A run file."""

    run: RunConfig = Field(default_factory=RunConfig)
    """The run as a whole."""
    model: ModelConfig
    """The policy."""
    data: DataConfig
    """The training prompts."""
    rewards: list[RewardConfig] = Field(default_factory=lambda: [RewardConfig(function="task")])
    """What is rewarded; a sample's reward is the weighted sum. May be empty where only a teacher is learned from."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """Sampling."""
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    """The algorithm."""
    distillation: DistillationConfig | None = None
    """Teachers to learn from; None learns from rewards alone."""
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    """Updating."""
    critic: CriticConfig = Field(default_factory=CriticConfig)
    """The critic, with an algorithm that asks for values."""
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    """The schedule."""
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    """Where the run's parts live."""
    weight_sync: WeightSyncConfig = Field(default_factory=WeightSyncConfig)
    """Publication and its proof."""
    evaluation: EvaluationConfig | None = None
    """Held-out evaluation; None evaluates never."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """Checkpoints."""
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    """Metrics and samples."""
