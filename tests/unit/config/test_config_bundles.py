"""Named algorithms resolve to the settings of their papers, and overrides to what was asked for."""

import dataclasses

import pytest

from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import resolve_algorithm


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", ("sample", 0.2, 0.2, "sequence_mean_token_mean", 300, 0.0, "k3", 0.0, False, 1, "keep", 300, 60)),
        ("dr_grpo", ("none", 0.2, 0.2, "constant", 300, 0.0, "k3", 0.0, False, 1, "keep", 300, 60)),
        ("dapo", ("sample", 0.2, 0.28, "token_mean", 300, 0.0, "k3", 0.0, True, 10, "mask", 300, 60)),
    ],
)
def test_a_bundle_has_the_settings_of_its_paper(name: str, expected: tuple[object, ...]) -> None:
    assert dataclasses.astuple(resolve_algorithm(AlgorithmConfig(name=name), 300)) == (name, *expected)


def test_every_override_reaches_the_resolved_algorithm() -> None:
    settings = {
        "name": "dapo",
        "advantage_std": "population",
        "clip_low": 0.1,
        "clip_high": 0.5,
        "aggregation": "constant",
        "constant_length": 7,
        "kl_coefficient": 0.3,
        "kl_estimator": "k1",
        "entropy_coefficient": 0.01,
        "drop_zero_signal": True,
        "max_sampling_rounds": 4,
        "truncated": "soft-overlong",
        "overlong_tokens": 200,
        "overlong_buffer_tokens": 20,
    }
    assert set(settings) == set(AlgorithmConfig.model_fields)
    assert dataclasses.asdict(resolve_algorithm(AlgorithmConfig.model_validate(settings), 300)) == settings


def test_zero_and_false_are_overrides_too() -> None:
    resolved = resolve_algorithm(AlgorithmConfig(name="dapo", drop_zero_signal=False, entropy_coefficient=0.0), 9)
    assert (resolved.drop_zero_signal, resolved.max_sampling_rounds) == (False, 1)


def test_dynamic_sampling_gets_a_bound_when_none_is_named() -> None:
    assert resolve_algorithm(AlgorithmConfig(drop_zero_signal=True), 9).max_sampling_rounds == 10


@pytest.mark.parametrize("policy", ["keep", "zero", "mask", "soft-overlong"])
def test_the_truncation_policy_is_told_by_its_name(policy: str) -> None:
    resolved = resolve_algorithm(AlgorithmConfig.model_validate({"truncated": policy}), 100)
    assert resolved.truncation.startswith({"keep": "kept"}.get(policy, policy))


def test_the_soft_punishment_ends_at_the_budget_and_begins_a_fifth_before_it() -> None:
    resolved = resolve_algorithm(AlgorithmConfig(truncated="soft-overlong"), 100)
    assert resolved.truncation.endswith("from 0 at 80 tokens to 1 at 100")
