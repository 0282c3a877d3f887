"""A run must learn: the share of sampled tokens that are the letter `e` rises, for every algorithm and for LoRA."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strop.api import train
from support.runs import stored_metrics, tiny_run

REWARD_BEFORE = 0.1
"""The letter is one of 320 tokens: an untrained model draws it now and then."""


@dataclass(frozen=True)
class Goal:
    """What a run must reach."""

    steps: int
    reward_after: float
    """Mean over the last three steps."""


FULL, FULL_GOAL = {"learning_rate": 2e-2}, Goal(steps=10, reward_after=0.5)
LORA, LORA_GOAL = {"learning_rate": 3e-2}, Goal(steps=25, reward_after=0.25)
"""Adapters leave the random head as it is, which bounds how likely a token can become."""


def rewards_of_a_run(folder: Path, steps: int, **sections: dict[str, Any]) -> list[float]:
    config = tiny_run(
        folder,
        reward="share_of_e",
        run={"steps": steps},
        rollout={"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 8},
        checkpoint={"every": 0},
        **sections,
    )
    return [line["reward/mean"] for line in stored_metrics(train(config).folder)[1:]]


@pytest.mark.parametrize(
    ("algorithm", "training"),
    [
        pytest.param({}, FULL, id="grpo"),
        pytest.param({"name": "dr_grpo"}, FULL, id="dr_grpo", marks=pytest.mark.slow),
        pytest.param({"name": "dapo", "truncated": "keep"}, FULL, id="dapo", marks=pytest.mark.slow),
        pytest.param({"kl_coefficient": 0.01}, FULL, id="grpo_with_kl", marks=pytest.mark.slow),
        pytest.param(
            {}, {**FULL, "updates_per_batch": 2, "epochs_per_batch": 2}, id="several_updates", marks=pytest.mark.slow
        ),
    ],
)
def test_the_reward_rises(tmp_path: Path, algorithm: dict[str, Any], training: dict[str, Any]) -> None:
    rewards = rewards_of_a_run(tmp_path, FULL_GOAL.steps, algorithm=algorithm, training=training)
    assert rewards[0] < REWARD_BEFORE
    assert sum(rewards[-3:]) / 3 > FULL_GOAL.reward_after, rewards


def test_the_reward_rises_with_adapters_only(tmp_path: Path) -> None:
    rewards = rewards_of_a_run(tmp_path, LORA_GOAL.steps, training=LORA, model={"lora": {"rank": 8, "alpha": 16.0}})
    assert rewards[0] < REWARD_BEFORE
    assert sum(rewards[-3:]) / 3 > LORA_GOAL.reward_after, rewards
