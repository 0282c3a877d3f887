"""Tasks: what is asked of the policy, and what it earns.

DataConfig --build.py--> QuestionTask (messages, gold answers, grader)
RewardConfig --rewards.py--> WeightedReward --reward_group--> rewarded Group
gold.py tests the rewards before they train
"""

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
