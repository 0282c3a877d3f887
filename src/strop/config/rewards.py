"""What is rewarded."""

from typing import Any

from pydantic import Field

from strop.config.base import Section


class RewardConfig(Section):
    """One reward; a sample's reward is the weighted sum of all of them."""

    function: str
    """`task` for the task's own grader, or a Python function as `my_file.py:name` or `package.module:name`."""
    weight: float = 1.0
    """Its weight in the sum."""
    name: str | None = None
    """Name in metrics; None takes the function's."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Fixed keyword arguments for the function."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """Time limit of one call; a call that runs over it makes its samples invalid."""
