"""Every generator of reasoning_gym goes through the self-test: its own gold answers score 1 and empty ones less."""

import asyncio

import pytest

from strop.config.data import DataConfig, ReasoningGymSource
from strop.config.rewards import RewardConfig
from strop.data import DataError, read_source
from strop.data.sources.reasoning_gym import generator_names
from strop.tasks import GoldReport, build_rewards, build_task, score_gold
from support.groups import made_prompt

NUM_ROWS = 5
WITHOUT_GOLD = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
"""Generators whose rows have no gold answer: many answers are right, and the scorer checks them."""
COMPOSITE = "composite"
"""Mixes other generators, which its options must name."""

pytestmark = pytest.mark.slow


def self_test(generator: str) -> GoldReport:
    source = ReasoningGymSource(name=generator, size=NUM_ROWS, seed=1)
    config = DataConfig(source=source, task=f"reasoning_gym:{generator}")
    read = read_source(source)
    assert not read.bad
    task = build_task(f"reasoning_gym:{generator}", config)
    rewards = build_rewards([RewardConfig(function="task")], task)
    prompts = [made_prompt(row.row_id, **dict(row.columns)) for row in read.rows]
    assert all(task.messages(row.columns)[-1]["content"] for row in read.rows)
    return asyncio.run(score_gold(task, rewards, prompts))


@pytest.mark.parametrize("generator", [name for name in generator_names() if name != COMPOSITE])
def test_a_generators_own_answers_score_1_or_it_is_known_to_give_none(generator: str) -> None:
    report = self_test(generator)
    assert report.failures == []
    assert report.num_without_gold == (NUM_ROWS if generator in WITHOUT_GOLD else 0)
    assert ("not self-testable" in report.line) == (generator in WITHOUT_GOLD)


def test_a_generator_of_generators_needs_its_options() -> None:
    with pytest.raises(DataError, match="generator 'composite' refuses its options"):
        self_test(COMPOSITE)
