"""Tasks: what is asked of the policy, and what it earns.

DataConfig --build.py--> QuestionTask (messages, gold answers, grader)
RewardConfig --rewards.py--> WeightedReward --reward_group--> rewarded Group
gold.py tests the rewards before they train

The names below load when they are first used: child processes import `tasks.grading` without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strop.tasks.build import build_task
    from strop.tasks.gold import GoldReport, score_gold
    from strop.tasks.question import QuestionTask
    from strop.tasks.rewards import (
        WeightedReward,
        build_rewards,
        check_rewards,
        combine_rewards,
        completion_text,
        reward_group,
    )

__all__ = [
    "GoldReport",
    "QuestionTask",
    "WeightedReward",
    "build_rewards",
    "build_task",
    "check_rewards",
    "combine_rewards",
    "completion_text",
    "reward_group",
    "score_gold",
]

_HOMES = {"build_task": "build", "GoldReport": "gold", "score_gold": "gold", "QuestionTask": "question"}
"""Where a name lives that does not live in `rewards`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"strop.tasks.{_HOMES.get(name, 'rewards')}"), name)
    raise AttributeError(f"module 'strop.tasks' has no attribute {name!r}")
