"""Named algorithms resolve to the settings of their papers, and overrides to what was asked for."""

import ast
import dataclasses
from pathlib import Path
from typing import get_args

import pytest

from strop.config import bundles
from strop.config.algorithm import AlgorithmConfig, BundleName, CorrectionConfig
from strop.config.bundles import BUNDLES, resolve_algorithm

FOLDER = Path(bundles.__file__).parent
PLAIN = resolve_algorithm(AlgorithmConfig(), 300)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("grpo", {}),
        ("dr_grpo", {"advantage_std": "none", "aggregation": "constant"}),
        (
            "dapo",
            {
                "clip_high": 0.28,
                "aggregation": "token_mean",
                "drop_zero_signal": True,
                "max_sampling_rounds": 10,
                "truncated": "mask",
            },
        ),
        ("gspo", {"loss": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}),
        ("rloo", {"advantage": "rloo", "loss": "reinforce", "aggregation": "sequence_mean_token_sum"}),
        ("ppo", {"advantage": "gae", "aggregation": "token_mean"}),
        ("clip_cov", {"loss": "clip_cov", "clip_low": 1.0, "clip_high": 1.0, "aggregation": "token_mean"}),
        ("raft", {"advantage": "best_of_n", "loss": "reinforce", "aggregation": "token_mean"}),
    ],
)
def test_a_bundle_has_the_settings_of_its_paper(name: str, changes: dict[str, object]) -> None:
    found = resolve_algorithm(AlgorithmConfig.model_validate({"name": name}), 300)
    assert found == dataclasses.replace(PLAIN, name=name, **changes)


def test_what_a_bundle_leaves_open_is_that_of_grpo() -> None:
    assert (PLAIN.advantage, PLAIN.loss, PLAIN.advantage_std, PLAIN.clip_low, PLAIN.clip_high) == (
        "group",
        "clip",
        "sample",
        0.2,
        0.2,
    )
    assert (PLAIN.aggregation, PLAIN.kl_coefficient, PLAIN.truncated) == ("sequence_mean_token_mean", 0.0, "keep")
    assert (PLAIN.constant_length, PLAIN.overlong_tokens, PLAIN.overlong_buffer_tokens) == (300, 300, 60)


def test_every_bundle_that_can_be_named_is_in_the_table() -> None:
    assert set(BUNDLES) == set(get_args(BundleName))


@pytest.mark.parametrize("name", get_args(BundleName))
def test_every_bundle_is_a_short_file_of_its_name_that_reads_beside_its_paper(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) <= 40
    assert "\n\n    " in said, "a block with its formula"
    assert "\nSource: " in said
    assert "arXiv:" in said
    assert "\nDeviations: " in said
    assert f'ResolvedAlgorithm("{name}"' in text


def test_no_file_of_a_bundle_is_left_out_of_the_table() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "settings"} == set(BUNDLES)


OTHER = {"loss": "gspo", "advantage": "rloo", "kl_placement": "reward", "kl_estimator": "k2", "truncated": "zero"}
OTHER |= {"advantage_std": "none", "aggregation": "constant", "drop_zero_signal": True}
OTHER |= {"correction": CorrectionConfig(weight="token")}


def test_every_override_reaches_the_resolved_algorithm() -> None:
    """Every key is given a value that no bundle has."""
    keys = [name for name in AlgorithmConfig.model_fields if name != "name"]
    settings = {
        key: OTHER.get(key, 7 if "int" in str(AlgorithmConfig.model_fields[key].annotation) else 0.77) for key in keys
    }
    settings["dual_clip"] = 1.77
    found = resolve_algorithm(AlgorithmConfig.model_validate(settings), 300)
    assert {key: getattr(found, key) for key in keys} == settings
    assert all(getattr(found, key) != getattr(PLAIN, key) for key in keys)


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
