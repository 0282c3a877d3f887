"""A run must learn: the share of sampled tokens that are the letter `e` rises, for every bundle, full weights and LoRA.

Each bundle is taken at its defaults. DAPO masks samples that are cut by their budget, and the tiny model ends none by
itself: cut samples are kept in its rows here, and a test of its own has samples that end.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strop.api import train
from strop.config.bundles import BUNDLES
from support.runs import stored_metrics, tiny_run

REWARD_BEFORE = 0.1
"""The letter is one of 320 tokens: an untrained model draws it now and then."""
MAX_SECONDS = 10
"""Of the processor's time, for a whole run."""

FAST = ("grpo", "ppo", "rloo")
ALL = [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in BUNDLES]
FOR_A_MODEL_THAT_NEVER_STOPS = {"dapo": {"truncated": "keep"}}


@dataclass(frozen=True)
class Goal:
    """What a run must reach."""

    steps: int
    reward_after: float
    """Mean over the last three steps."""


FULL, FULL_GOAL = {"learning_rate": 2e-2}, Goal(steps=10, reward_after=0.5)
LORA, LORA_GOAL = {"learning_rate": 3e-2}, Goal(steps=25, reward_after=0.2)
"""Adapters leave the random head as it is, which bounds how likely a token can become."""
TWICE = {"epochs_per_batch": 2}
"""In the second epoch the policy is not the one that sampled any more: there the losses differ."""


def assert_learns(folder: Path, goal: Goal, rollout: dict[str, Any] | None = None, **sections: Any) -> None:
    """The reward of a run rises from that of an untrained model to the goal."""
    config = tiny_run(
        folder,
        reward="share_of_e",
        run={"steps": goal.steps},
        rollout={"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 8, **(rollout or {})},
        checkpoint={"every": 0},
        **sections,
    )
    started = time.process_time()
    rewards = [line["reward/mean"] for line in stored_metrics(train(config).folder)[1:]]
    assert time.process_time() - started < MAX_SECONDS
    assert rewards[0] < REWARD_BEFORE
    assert sum(rewards[-3:]) / 3 > goal.reward_after, rewards


@pytest.mark.parametrize("name", ALL)
def test_the_reward_rises(name: str, tmp_path: Path) -> None:
    algorithm = {"name": name, **FOR_A_MODEL_THAT_NEVER_STOPS.get(name, {})}
    assert_learns(tmp_path, FULL_GOAL, algorithm=algorithm, training={**FULL, **TWICE})


@pytest.mark.parametrize("name", ALL)
def test_the_reward_rises_with_adapters_only(name: str, tmp_path: Path) -> None:
    algorithm = {"name": name, **FOR_A_MODEL_THAT_NEVER_STOPS.get(name, {})}
    assert_learns(tmp_path, LORA_GOAL, algorithm=algorithm, training=LORA, model={"lora": {"rank": 8, "alpha": 16.0}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "training"),
    [
        pytest.param({}, FULL, id="on_policy"),
        pytest.param({"kl_coefficient": 0.01}, FULL, id="with_a_kl_term"),
        pytest.param({}, {**FULL, "updates_per_batch": 2, "epochs_per_batch": 2}, id="several_updates"),
    ],
)
def test_the_reward_of_grpo_rises(tmp_path: Path, algorithm: dict[str, Any], training: dict[str, Any]) -> None:
    assert_learns(tmp_path, FULL_GOAL, algorithm=algorithm, training=training)


@pytest.mark.slow
def test_the_reward_of_ppo_rises_with_one_sample_a_prompt(tmp_path: Path) -> None:
    rollout = {"prompts_per_step": 32, "group_size": 1}
    assert_learns(tmp_path, FULL_GOAL, rollout, rows=32, algorithm={"name": "ppo"}, training=FULL)


@pytest.mark.slow
def test_the_reward_of_dapo_rises_where_samples_end_by_themselves(tmp_path: Path) -> None:
    """A sample ends with the letter, so that its reward is hardly above 1/8, and those without it are masked."""
    goal = Goal(steps=10, reward_after=0.15)
    assert_learns(tmp_path, goal, {"stop_strings": ["e"]}, algorithm={"name": "dapo"}, training=FULL)
