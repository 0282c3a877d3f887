"""Every two parts of an algorithm that are allowed together take a real step together, with finite numbers.

The rows are a pairwise covering array over estimator x KL term x loss x correction x aggregation x updates a batch x
full weights or adapters. Each samples with the native engine, is judged by a function in a process of its own, updates
a copy of the tiny llama, and publishes and proves the weights. What the rows share is that engine and the weights that
they begin from.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop.api import open_session, train
from strop.config.checks import check
from strop.config.compatibility import reason_against
from strop.errors import ConfigError
from strop.trainers.session import Session
from support.combinations import FACTORS, config_of, is_allowed, not_finite, parts_of, step_of
from support.covering import Pair, Row, all_pairs, covering_array, pairs_of
from support.runs import stored_metrics

ARRAY, REFUSED_PAIRS = covering_array(FACTORS, is_allowed)
MAX_SECONDS = 60
"""On one thread; time that the machine gives to other processes does not count."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    with open_session(config_of(ARRAY[0] | {"weights": "full"}, folder)) as session:
        yield session


def test_the_array_holds_every_pair_that_the_matrix_allows() -> None:
    held = {pair for row in ARRAY for pair in pairs_of(row, FACTORS)}
    assert held | REFUSED_PAIRS == set(all_pairs(FACTORS))
    assert not held & REFUSED_PAIRS
    assert all(is_allowed(row) for row in ARRAY)
    assert all(not is_allowed(dict(pair)) for pair in REFUSED_PAIRS)
    assert len(ARRAY) < 1.5 * len(FACTORS["advantage"]) * len(FACTORS["loss"])


def test_every_row_takes_a_step_with_finite_numbers_and_moves_the_weights(session: Session, folder: Path) -> None:
    started, computed = time.perf_counter(), time.process_time()
    wrong: dict[str, list[str]] = {}
    for row in ARRAY:
        faults = faults_of(row, session, folder)
        if faults:
            wrong[" ".join(row.values())] = faults
    seconds, of_thread = time.perf_counter() - started, time.process_time() - computed
    print(f"{len(ARRAY)} combinations, a step each: {seconds:.1f} s, {of_thread:.1f} s of them on this thread")
    assert not wrong
    assert of_thread < MAX_SECONDS


def faults_of(row: Row, session: Session, folder: Path) -> list[str]:
    """What is wrong with the step of a row."""
    stepped = step_of(row, session, folder)
    faults = [f"{name} is not finite" for name in not_finite(stepped.metrics)]
    times = 4 if row["updates"] == "2x2" else 1
    if [report.applied for report in stepped.reports] != [True] * times:
        faults.append(f"updates: {stepped.reports}")
    norms = [report.gradient_norm for report in stepped.reports]
    if not (norms[0] > 0 and all(map(math.isfinite, norms))):  # a clip may hold every token of a later update
        faults.append(f"gradient norms: {norms}")
    if not stepped.moved:
        faults.append("no weight moved")
    if not stepped.published:
        faults.append("the sampler was not proven to have the new weights")
    return faults


PLAIN = {
    "advantage": "group",
    "kl": "none",
    "loss": "clip",
    "correction": "none",
    "aggregation": "token_mean",
    "updates": "1",
    "weights": "full",
}


@pytest.mark.parametrize("pair", sorted(REFUSED_PAIRS), ids=lambda pair: "-".join(level for _, level in pair))
def test_a_run_file_with_a_refused_pair_is_refused_by_key_and_reason(pair: Pair, folder: Path) -> None:
    row = PLAIN | dict(pair)
    against = reason_against(parts_of(row))
    assert against is not None
    with pytest.raises(ConfigError) as refused:
        check(config_of(row, folder))
    assert " ".join(against) in str(refused.value)


WHOLE_RUNS: dict[str, Row] = {
    "critic": {"advantage": "gae", "kl": "reward:k1", "loss": "clip", "correction": "token"},
    "greedy_baseline": {"advantage": "remax", "kl": "loss:k3+", "loss": "reinforce", "correction": "sequence-band"},
    "collisions": {"advantage": "optimal_token_baseline", "kl": "reward:abs", "loss": "gspo", "correction": "none"},
    "chosen_tokens": {"advantage": "gdpo", "kl": "loss:full", "loss": "clip_cov", "correction": "two-policy"},
    "sequences": {"advantage": "pass_at_k", "kl": "none", "loss": "gmpo", "correction": "geometric-band"},
}


@pytest.mark.parametrize("weights", FACTORS["weights"])
@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_a_run_of_two_steps_with_other_parts_than_any_bundle_has_trains(
    name: str, weights: str, tmp_path: Path
) -> None:
    row = WHOLE_RUNS[name] | {"aggregation": "token_mean", "updates": "2x2", "weights": weights}
    config = config_of(row, tmp_path)
    lines = stored_metrics(train(config.model_copy(update={"run": config.run.model_copy(update={"steps": 2})})).folder)
    for line in lines[1:]:
        assert line["update/applied"] == 4
        assert line["sync/state"] == 1
        assert not [name for name, value in line.items() if isinstance(value, float) and not math.isfinite(value)]
