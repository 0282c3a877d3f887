"""How progress is measured."""

from pydantic import Field

from strop.config.base import Section
from strop.config.data import Source


class EvaluationConfig(Section):
    """Evaluation on held-out prompts, with sampling settings of its own."""

    source: Source
    """Where the held-out rows come from; task, columns and instruction are those of `data`."""
    limit: int | None = Field(default=None, ge=1)
    """Takes only the first rows."""
    every: int = Field(default=0, ge=0)
    """Evaluates after every so many steps; 0 only before and after."""
    before: bool = True
    """Evaluates before the first step."""
    after: bool = True
    """Evaluates after the last step."""
    samples: int = Field(default=1, ge=1)
    """Samples a prompt."""
    temperature: float = Field(default=1.0, ge=0)
    """0 is greedy and takes one sample a prompt."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling."""
    top_k: int = Field(default=0, ge=0)
    """0 is off."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Budget of a sample; None takes rollout.max_new_tokens."""
    pass_at: list[int] = Field(default_factory=list)
    """Reports pass@k for these k, each at most `samples`."""
    solved_at: float = 1.0
    """A sample is solved when its reward is at least this."""
    greedy: bool = False
    """Evaluates greedily too, reported beside the sampled result."""
