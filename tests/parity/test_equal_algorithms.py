"""Algorithms that are the same where their formulas say so have the same gradient through the whole update half.

Nothing here knows how a loss is computed: a wrong sign, scale, sum or order of arguments in one of two shows.
"""

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from strop.config.compatibility import LOSSES
from strop.records import Group
from strop.trainers.step import prepare_update
from support.training import assert_gradients_close, gradients
from support.update_half import measured, resolved, sampled_groups, shortened, step_settings, update_roles

TOLERANCE = 1e-5
GROUPS = sampled_groups()
UNBOUNDED = {"clip_low": 1.0, "clip_high": 1e9}


def gradient(groups: list[Group] = GROUPS, head: bool = True, **keys: Any) -> dict[str, Tensor]:
    """The gradient off-policy."""
    return measured(resolved(**keys), groups, head=head).gradients


def first_gradient(**keys: Any) -> dict[str, Tensor]:
    """The gradient of the first update of a batch, where new and old policy are one."""
    roles = update_roles(resolved(**keys))
    prepared = prepare_update(roles, step_settings(), GROUPS)
    roles.policy.forward_backward(roles.algorithm.prepare(prepared.plans[0])[0], roles.algorithm.loss)
    return gradients(roles.policy)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in ("clip_cov", "kl_cov")])
def test_in_the_first_update_every_loss_is_reinforce(loss: str) -> None:
    assert_gradients_close(first_gradient(loss=loss), first_gradient(loss="reinforce"), TOLERANCE)


def test_ppo_with_a_critic_that_says_0_and_undiscounted_returns_is_reinforce_plus_plus() -> None:
    ppo = gradient(head=False, name="ppo", gae_lambda=1.0)
    assert_gradients_close(ppo, gradient(name="reinforce_pp"), TOLERANCE)
    with pytest.raises(AssertionError):
        assert_gradients_close(gradient(name="ppo", gae_lambda=1.0), ppo, TOLERANCE)


def test_rloo_is_the_group_mean_with_n_over_n_less_1() -> None:
    keys = {"advantage_std": "none", "loss": "reinforce", "aggregation": "sequence_mean_token_sum"}
    mean = {name: value * 4 / 3 for name, value in gradient(**keys).items()}
    assert_gradients_close(gradient(name="rloo"), mean, TOLERANCE)


@pytest.mark.parametrize(
    "unbounded",
    [
        {"name": "cispo", **UNBOUNDED},
        {"name": "dppo", "clip_low": 1.0, "clip_high": 1.0},
        {"loss": "dppo_kl", "clip_low": 1e9, "clip_high": 1e9, "aggregation": "token_mean"},
    ],
    ids=["cispo", "dppo_tv", "dppo_kl"],
)
def test_without_bounds_the_losses_of_single_ratios_are_one(unbounded: dict[str, Any]) -> None:
    expected = gradient(loss="clip", aggregation="token_mean", **UNBOUNDED)
    assert_gradients_close(gradient(**unbounded), expected, TOLERANCE)


def test_without_bounds_gmpo_is_gspo() -> None:
    gmpo = gradient(loss="gmpo", clip_low=1e9, clip_high=1e9)
    assert_gradients_close(gmpo, gradient(loss="gspo", **UNBOUNDED), TOLERANCE)


@pytest.mark.parametrize("bounds", [{"clip_low": 0.05, "clip_high": 0.08}, UNBOUNDED], ids=["bounded", "unbounded"])
def test_for_single_tokens_the_ratio_of_a_sequence_is_that_of_its_token(bounds: dict[str, float]) -> None:
    single = [
        group.with_samples([replace(sample, rows=(shortened(sample.rows[0], 1),)) for sample in group.samples])
        for group in GROUPS
    ]
    assert_gradients_close(gradient(single, loss="gspo", **bounds), gradient(single, loss="clip", **bounds), TOLERANCE)


def test_token_weights_of_old_over_rollout_make_three_policies_two() -> None:
    """w = new / old times old / rollout is new / rollout, where neither is bounded."""
    three = gradient(loss="clip", **UNBOUNDED, correction={"weight": "token", "weight_cap": 1e9})
    two = gradient(loss="clip", **UNBOUNDED, correction={"policies": 2})
    assert_gradients_close(three, two, TOLERANCE)


def test_samples_of_one_length_make_the_aggregations_one_but_for_their_scale() -> None:
    even = sampled_groups(sampled_tokens=(6, 6))
    even = [group.with_samples([replace(sample, rows=sample.rows[:1]) for sample in group.samples]) for group in even]
    expected = gradient(even, aggregation="token_mean")
    assert_gradients_close(gradient(even, aggregation="sequence_mean_token_mean"), expected, TOLERANCE)
    for aggregation, scale in (("sequence_mean_token_sum", 6), ("constant", 6 / 8)):
        found = {name: value / scale for name, value in gradient(even, aggregation=aggregation).items()}
        assert_gradients_close(found, expected, TOLERANCE)
