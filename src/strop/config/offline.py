"""The run file of offline training: `strop sft`, `strop dpo`, `strop ipo` and `strop kto`.

It is made of the sections of an online run wherever these mean the same; nothing is sampled, so there is no rollout, no
reward and no publication.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.config.base import Section
from strop.config.checkpoint import CheckpointConfig
from strop.config.data import HubSource, JsonlSource, ParquetSource
from strop.config.metrics import MetricsConfig
from strop.config.model import ModelConfig
from strop.config.run import RunConfig
from strop.config.training import TrainingConfig

OfflineMethodName = Literal["sft", "dpo", "ipo", "kto"]
COLUMNS = ("messages", "prompt", "completion", "chosen", "rejected", "label")
"""What rows are read for; `data.columns` names them otherwise."""


class SamplesSource(Section):
    """What another run sampled, token by token as it was sampled: rejection-sampling fine-tuning. For `sft` only."""

    type: Literal["samples"] = "samples"
    """Kind of source."""
    path: Path
    """Folder of the run, such as `runs/mine`; its tokenizer must be that of the model."""
    minimum_reward: float = 1.0
    """Samples with a lower reward, or without one, are left out."""


OfflineSource = Annotated[JsonlSource | ParquetSource | HubSource | SamplesSource, Field(discriminator="type")]


class OfflineRunConfig(RunConfig):
    """The run as a whole."""

    steps: int = Field(default=0, ge=0)
    """Training ends after this many steps, or earlier when `data.epochs` are used up; 0 sets no bound."""


class OfflineDataConfig(Section):
    """The rows to learn from."""

    source: OfflineSource
    """Where the rows come from; `type` chooses the kind."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Columns that are named otherwise, such as `{ messages = "conversation" }`."""
    system_prompt: str | None = None
    """System message put before every conversation."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, such as `enable_thinking`."""
    on_overlong: Literal["drop", "error"] = "drop"
    """Whether rows longer than model.max_length are dropped and counted at the start, or end the run there."""
    on_bad_row: Literal["error", "skip"] = "error"
    """Whether rows that cannot be used (broken, of a wrong type, without a turn to train) end the run or are skipped
    and told."""
    shuffle: bool = True
    """Draws a new order every epoch; else the order of the file."""
    epochs: int | None = Field(default=1, ge=1)
    """Passes over the data; None goes on until `run.steps`."""
    limit: int | None = Field(default=None, ge=1)
    """Takes only the first rows."""


class SftConfig(Section):
    """Supervised fine-tuning: the mean negative log-likelihood of the trained tokens."""

    type: Literal["sft"] = "sft"
    """The method; the command names it too."""
    train_on: Literal["assistant", "last", "all"] = "assistant"
    """Which tokens bear loss: every assistant turn, the last one only, or the whole text."""


class DpoConfig(Section):
    """Direct preference optimization (Rafailov et al. 2023)."""

    type: Literal["dpo"] = "dpo"
    """The method; the command names it too."""
    beta: float = Field(default=0.1, gt=0)
    """How strongly the policy is held to the reference."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of the pairs that are taken to be the wrong way round."""


class IpoConfig(Section):
    """Identity preference optimization (Azar et al. 2023)."""

    type: Literal["ipo"] = "ipo"
    """The method; the command names it too."""
    beta: float = Field(default=0.1, gt=0)
    """The paper's tau: the margin a token goes to 1 / (2 beta)."""


class KtoConfig(Section):
    """Kahneman-Tversky optimization (Ethayarajh et al. 2024): single answers with a label."""

    type: Literal["kto"] = "kto"
    """The method; the command names it too."""
    beta: float = Field(default=0.1, gt=0)
    """How fast the value of an answer saturates as it departs from the reference."""
    desirable_weight: float = Field(default=1.0, gt=0)
    """Weight of answers with label true."""
    undesirable_weight: float = Field(default=1.0, gt=0)
    """Weight of answers with label false."""


OfflineMethodConfig = Annotated[SftConfig | DpoConfig | IpoConfig | KtoConfig, Field(discriminator="type")]


class OfflineTrainingConfig(TrainingConfig):
    """The training engine and its optimizer."""

    learning_rate: float = Field(gt=0)
    """Peak learning rate of AdamW. Usual are 2e-5 for sft and 1e-6 for preferences, and ten times that with LoRA."""
    batch_size: int = Field(default=16, ge=1)
    """Rows of an update: conversations, pairs or answers. The last batch may be smaller."""
    schedule_updates: int | None = Field(default=None, ge=1)
    """Updates after which `linear` and `cosine` reach their end; None takes all updates of the run."""


class OfflineEvaluationConfig(Section):
    """The loss on held-out rows."""

    source: OfflineSource
    """Where the held-out rows come from; columns and prompts are those of `data`."""
    limit: int | None = Field(default=None, ge=1)
    """Takes only the first rows."""
    every: int = Field(default=0, ge=0)
    """Evaluates after every so many steps; 0 only before and after."""
    before: bool = True
    """Evaluates before the first step."""
    after: bool = True
    """Evaluates after the last step."""


class OfflineConfig(Section):
    """A run file of offline training."""

    run: OfflineRunConfig = Field(default_factory=OfflineRunConfig)
    """The run as a whole."""
    model: ModelConfig
    """The policy."""
    data: OfflineDataConfig
    """The rows to learn from."""
    offline: OfflineMethodConfig
    """The method."""
    training: OfflineTrainingConfig
    """Updating."""
    evaluation: OfflineEvaluationConfig | None = None
    """Held-out evaluation; None evaluates never."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """Checkpoints."""
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    """Metrics."""
