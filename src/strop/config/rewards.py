"""What is rewarded."""

from typing import Any

from pydantic import Field

from strop.config.base import Section
from strop.config.judges import JudgeConfig, RewardModelConfig


class RewardConfig(Section):
    """One reward, by a function, a reward model or a judge; a sample's reward is the weighted sum of all of them."""

    function: str | None = None
    """`task` for the task's own grader, or a Python function as `my_file.py:name` or `package.module:name`."""
    weight: float = 1.0
    """Its weight in the sum."""
    name: str | None = None
    """Name in metrics; None takes the function's, or `model`, or `judge`."""
    sources: list[str] | None = Field(default=None, min_length=1)
    """Names of the data sets whose rows it judges, such as parts of a mixture; None judges all."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Fixed keyword arguments for the function."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """Time limit of one call, or of one try to ask a judge; a call that runs over it makes its samples invalid."""
    memory_gib: float = Field(default=8.0, gt=0)
    """Memory limit of a process that judges; a call that needs more makes its samples invalid."""
    processes: int | None = Field(default=None, ge=1)
    """How many processes judge at once, each with a module state of its own. None takes one for a function of yours,
    and one a core, at most four, for the task's grader. Async functions run in the trainer's process, without any."""
    model: RewardModelConfig | None = None
    """A reward model instead of a function."""
    judge: JudgeConfig | None = None
    """A language model that judges by a rubric, instead of a function."""

    @property
    def own_name(self) -> str:
        """Its name in metrics, where the task's grader does not name itself."""
        return self.name or (self.function or ("model" if self.judge is None else "judge")).rpartition(":")[2]

    def judges(self, source: str) -> bool:
        """Whether it judges the rows of the data set of this name."""
        return self.sources is None or source in self.sources
