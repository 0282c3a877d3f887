"""Values, GAE and the two updates of PPO fit together: rows carry what one part works out and the next one reads."""

from dataclasses import replace

import numpy as np
import pytest

from strop.algorithms.build import build_algorithm
from strop.algorithms.value_loss import value_weights
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import resolve_algorithm
from strop.metrics import values
from strop.protocols import Algorithm
from strop.records import Group
from strop.records.packing import with_target_fields
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.plan import plan_micro_batches
from support.critic import tiny_critic
from support.tiny import tiny_groups
from support.training import all_keys, tiny_engine


def ppo() -> Algorithm:
    return build_algorithm(resolve_algorithm(AlgorithmConfig(name="ppo", gae_lambda=0.9), max_new_tokens=8))


def judged_groups() -> list[Group]:
    """Groups without advantages whose third sample of the first group has no valid reward."""
    groups = []
    for group in tiny_groups(num_groups=3, sampled_tokens=(4, 12)):
        samples = []
        for sample in group.samples:
            rows = tuple(replace(row, advantages=None) for row in sample.rows)
            # The reward is seen in the prompt's group, so that values can foresee it.
            is_first = group.prompt.prompt_id == "tiny-0"
            samples.append(replace(sample, rows=rows, reward=1.0 if is_first else -0.5))
        groups.append(group.with_samples(samples))
    invalid = replace(groups[0].samples[2], reward=None)
    groups[0] = groups[0].with_samples([*groups[0].samples[:2], invalid])
    return groups


def valued(critic: Fsdp2Critic, groups: list[Group]) -> list[Group]:
    keys = all_keys(groups)
    plan = plan_micro_batches(groups, keys, dict.fromkeys(keys, 1.0), max_tokens=40)
    return with_target_fields(groups, plan.micro_batches, critic.values(plan), "values")


def test_a_step_of_ppo_updates_critic_and_policy_from_the_same_rows() -> None:
    algorithm, critic, engine = ppo(), tiny_critic(), tiny_engine()
    assert algorithm.needs.values
    groups = algorithm.advantages(valued(critic, judged_groups()))
    weights = algorithm.weights(groups)
    assert (0, 2) not in weights
    own = value_weights(groups, weights)
    assert own == pytest.approx(weights), "ppo aggregates by token_mean too"
    metrics = critic.forward_backward(plan_micro_batches(groups, own, own, max_tokens=40))
    assert critic.optimizer_step().applied
    rows = [row for g, s in weights for row in groups[g].samples[s].rows]
    sampled = {
        name: np.concatenate([row.fields[name][row.loss_mask] for row in rows]) for name in ("values", "returns")
    }
    found = values(metrics)
    assert found["value/mean"] == pytest.approx(sampled["values"].mean(), rel=1e-5)
    assert found["value/loss"] == pytest.approx(0.5 * ((sampled["values"] - sampled["returns"]) ** 2).mean(), rel=1e-4)
    left = (sampled["returns"] - sampled["values"]).var() / sampled["returns"].var()
    assert found["value/explained_variance"] == pytest.approx(1 - left, rel=1e-4)
    engine.forward_backward(plan_micro_batches(groups, weights, weights, max_tokens=40), algorithm.loss)
    assert engine.optimizer_step().applied


def test_values_come_to_foresee_the_returns() -> None:
    algorithm, critic = ppo(), tiny_critic(head=False, learning_rate=3e-3)
    explained = []
    for _ in range(30):
        groups = algorithm.advantages(valued(critic, judged_groups()))
        own = value_weights(groups, algorithm.weights(groups))
        found = values(critic.forward_backward(plan_micro_batches(groups, own, own, max_tokens=100)))
        explained.append(found["value/explained_variance"])
        assert critic.optimizer_step().applied
    assert explained[0] == pytest.approx(0, abs=1e-6), "a new critic foresees nothing"
    assert explained[-1] > 0.8
