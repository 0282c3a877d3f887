"""The compatibility matrix, enumerated without running anything."""

import itertools
import re
from collections import Counter

import pytest

from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import BUNDLES, ResolvedAlgorithm, resolve_algorithm
from strop.config.compatibility import (
    ADVANTAGE_KEYS,
    ADVANTAGES,
    CORRECTIONS,
    ENGINES,
    KL_TERMS,
    LOSS_KEYS,
    LOSSES,
    SCHEDULES,
    Combination,
    combinations_of,
    reason_against,
)

EVERY = [
    Combination(*parts) for parts in itertools.product(ADVANTAGES, LOSSES, KL_TERMS, CORRECTIONS, SCHEDULES, ENGINES)
]


def test_every_combination_is_allowed_or_refused_by_a_key_with_a_reason() -> None:
    keys = {f"algorithm.{name}" for name in AlgorithmConfig.model_fields}
    verdicts = Counter()
    for parts in EVERY:
        found = reason_against(parts)
        verdicts[found is None] += 1
        if found is not None:
            key, reason = found
            assert key in keys or key.startswith("algorithm.correction.")
            assert re.match(r"(must|does nothing: )", reason), reason
    assert len(EVERY) == len(ADVANTAGES) * len(LOSSES) * len(KL_TERMS) * len(CORRECTIONS)
    assert verdicts[True] > verdicts[False] > 1000


@pytest.mark.parametrize(
    ("refused", "key"),
    [
        (Combination("group", "clip", "loss:k1"), "algorithm.kl_estimator"),
        (Combination("group", "clip", "reward:full"), "algorithm.kl_estimator"),
        (Combination("group", "clip", "reward:k3+"), "algorithm.kl_estimator"),
        (Combination("maxrl", "clip", "reward:k1"), "algorithm.kl_placement"),
        (Combination("group", "reinforce", correction="two-policy"), "algorithm.correction.policies"),
        (Combination("group", "gspo", correction="token"), "algorithm.correction.weight"),
        (Combination("group", "gspo", correction="token-band"), "algorithm.correction.token_band"),
        (Combination("best_of_n", "kl_cov"), "algorithm.loss"),
    ],
)
def test_what_cannot_work_is_refused_by_the_key_to_blame(refused: Combination, key: str) -> None:
    found = reason_against(refused)
    assert found is not None
    assert found[0] == key


def test_every_pair_of_parts_occurs_in_an_allowed_combination_or_is_refused_for_itself() -> None:
    allowed = [parts for parts in EVERY if reason_against(parts) is None]
    pairs = {(parts.advantage, parts.loss) for parts in allowed}
    missing = set(itertools.product(ADVANTAGES, LOSSES)) - pairs
    assert missing == {("best_of_n", "clip_cov"), ("best_of_n", "kl_cov")}


@pytest.mark.parametrize("name", BUNDLES)
def test_every_bundle_is_an_allowed_combination(name: str) -> None:
    resolved = resolve_algorithm(AlgorithmConfig.model_validate({"name": name}), 8)
    assert [reason_against(parts) for parts in combinations_of(resolved, "sync", "fsdp2")] == [None]


def test_each_correction_that_is_on_is_looked_at() -> None:
    correction = AlgorithmConfig.model_validate(
        {"correction": {"weight": "token", "sequence_band": (0.5, 2.0)}}
    ).correction
    found = combinations_of(ResolvedAlgorithm("grpo", correction=correction), "sync", "fsdp2")
    assert [parts.correction for parts in found] == ["sequence-band", "token"]


def test_the_tables_of_keys_name_keys_and_parts_that_exist() -> None:
    for table, names in ((ADVANTAGE_KEYS, ADVANTAGES), (LOSS_KEYS, LOSSES)):
        assert set(table) <= set(names)
        assert {key for keys in table.values() for key in keys} <= set(AlgorithmConfig.model_fields)
