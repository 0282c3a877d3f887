"""The critic of an algorithm that asks for values."""

from pydantic import Field

from strop.config.base import Section


class CriticConfig(Section):
    """A model of its own with a value head: trained beside the policy, with the settings of [model] and [training]."""

    path: str | None = None
    """A model with the policy's tokenizer, or the folder `critic` of a checkpoint; None takes the policy's model."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Peak learning rate; it takes the course of the policy's."""
    warmup_updates: int = Field(default=0, ge=0)
    """First updates in which the critic learns and the policy does not."""
    value_clip: float = Field(default=0.5, gt=0)
    """How far the updates of a step pull a value from where the step found it."""
