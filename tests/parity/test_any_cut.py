"""The update of every algorithm depends on the batch only: no cut into micro-batches changes its loss or gradient.

The policy has moved since it sampled, so that ratios differ from 1 and bounds hold some tokens; the sampler's log-probs
are off by a tenth, so that corrections matter; one sample has two rows; the reference is not the policy.
"""

from typing import Any

import pytest

from strop.config.bundles import BUNDLES
from support.training import assert_gradients_close, relative_error
from support.update_half import AT_ONCE, Measured, measured, resolved, sampled_groups

TOLERANCE = 1e-5
"""Relative Frobenius norm of each parameter's gradient, and relative for the loss, in float32."""
GROUPS = sampled_groups(group_size=5)
CUTS: dict[str, dict[str, Any]] = {
    "one_sample_each": {"max_tokens": 1},
    "a_few_samples_each": {"max_tokens": 25},
    "rows_alone": {"max_tokens": AT_ONCE, "share_prefix": False},
}
CASES: dict[str, dict[str, Any]] = {name: {"name": name} for name in BUNDLES} | {
    "pass_at_2": {"name": "pass_at_k", "pass_k": 2},
    "dual_clip": {"dual_clip": 1.1},
    "dppo_kl": {"loss": "dppo_kl", "clip_low": 0.01, "clip_high": 0.01},
    "dppo_tv_of_a_narrow_bound": {"name": "dppo", "clip_low": 0.005, "clip_high": 0.005},
    "clip_cov_of_many": {"name": "clip_cov", "covariance_share": 0.2, "covariance_low": -9.0, "covariance_high": 9.0},
    "kl_cov_of_many": {"name": "kl_cov", "covariance_share": 0.2},
    "clip_cov_by_the_sampler": {
        "name": "clip_cov",
        "covariance_share": 0.2,
        "covariance_low": -9.0,
        "correction": {"policies": 2},
    },
    "token_weights": {"correction": {"weight": "token", "weight_cap": 1.05, "normalise": True}},
    "sequence_weights": {"name": "gspo", "correction": {"weight": "sequence", "normalise": True}},
    "token_band": {"correction": {"token_band": [0.95, 1.05], "weight": "token"}},
    "geometric_band": {"name": "gmpo", "correction": {"geometric_band": [0.97, 1.03], "weight": "sequence"}},
    "sequence_band": {"name": "gspo", "correction": {"sequence_band": [0.8, 1.2]}},
    "two_policies": {"name": "gspo", "correction": {"policies": 2}},
    "k3_loss": {"kl_coefficient": 0.2, "kl_estimator": "k3"},
    "k1+_loss": {"kl_coefficient": 0.2, "kl_estimator": "k1+"},
    "full_loss": {"kl_coefficient": 0.2, "kl_estimator": "full", "kl_top_k": 8},
    "ppo_with_its_kl_reward": {"name": "ppo", "kl_coefficient": 0.2, "kl_placement": "reward", "kl_estimator": "k1"},
    "otb_with_a_kl_reward": {"name": "otb", "kl_coefficient": 0.2, "kl_placement": "reward", "kl_estimator": "k1"},
    "entropy": {"entropy_coefficient": 0.1},
    "everything": {
        "name": "gspo",
        "kl_coefficient": 0.2,
        "kl_estimator": "k3",
        "entropy_coefficient": 0.1,
        "aggregation": "constant",
        "correction": {"weight": "sequence", "geometric_band": [0.9, 1.1], "normalise": True},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_no_cut_changes_loss_or_gradient(name: str) -> None:
    settings = resolved(**CASES[name])
    expected = measured(settings, GROUPS)
    assert expected.num_micro_batches == 1
    assert expected.gradients
    assert all(gradient.norm() > 0 for gradient in expected.all_gradients.values())
    for cut, how in CUTS.items():
        actual = measured(settings, GROUPS, **how)
        assert (actual.num_micro_batches > 1) == (how["max_tokens"] < AT_ONCE)
        assert_same(actual, expected, cut)


def assert_same(actual: Measured, expected: Measured, cut: str) -> None:
    for name, value in (expected.metrics | expected.critic_metrics).items():
        if name not in ("update/micro_batches", "update/micro_batches_over_budget"):
            found = (actual.metrics | actual.critic_metrics)[name]
            assert found == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE), (cut, name)
    assert_gradients_close(actual.all_gradients, expected.all_gradients, TOLERANCE)


def test_the_batch_lets_bounds_and_corrections_take_hold() -> None:
    """What the other test compares is not the plain policy gradient under many names."""
    clipped = measured(resolved(), GROUPS).metrics
    assert 0.05 < clipped["update/clipped_low_share"] + clipped["update/clipped_high_share"] < 0.95
    for name in ("token_band", "geometric_band", "sequence_band"):
        assert 0.05 < measured(resolved(**CASES[name]), GROUPS).metrics["mismatch/rejected_share"] < 0.95
    plain = measured(resolved(), GROUPS).gradients
    for name, keys in CASES.items():
        if name != "grpo":
            found = measured(resolved(**keys), GROUPS).gradients
            assert any(relative_error(found[key], plain[key]) > 1e-3 for key in plain), name
