"""Every two parts of an algorithm that are allowed together take a real step together, with finite numbers.

The rows are a pairwise covering array over estimator x KL term x loss x correction x aggregation x updates a batch x
full weights or adapters. Each samples with the native engine, is judged by a function in a process of its own, updates a
copy of the tiny llama, and publishes and proves the weights. What the rows share is that engine and the weights that
they begin from.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop.api import open_session, train
from strop.trainers.session import Session
from support.combinations import FACTORS, config_of, is_allowed, not_finite, step_of
from support.covering import Row, all_pairs, covering_array, pairs_of

ARRAY, REFUSED_PAIRS = covering_array(FACTORS, is_allowed)
MAX_SECONDS = 60


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
    started = time.perf_counter()
    wrong: dict[str, list[str]] = {}
    for row in ARRAY:
        faults = faults_of(row, session, folder)
        if faults:
            wrong[" ".join(row.values())] = faults
    seconds = time.perf_counter() - started
    print(f"{len(ARRAY)} combinations, a step each, in {seconds:.1f} s")
    assert not wrong
    assert seconds < MAX_SECONDS


def faults_of(row: Row, session: Session, folder: Path) -> list[str]:
    """What is wrong with the step of a row."""
    stepped = step_of(row, session, folder)
    faults = [f"{name} is not finite" for name in not_finite(stepped.metrics)]
    times = 4 if row["updates"] == "2x2" else 1
    if [report.applied for report in stepped.reports] != [True] * times:
        faults.append(f"updates: {stepped.reports}")
    if not all(0 < report.gradient_norm < float("inf") for report in stepped.reports):
        faults.append(f"gradient norms: {[report.gradient_norm for report in stepped.reports]}")
    if not stepped.moved:
        faults.append("no weight moved")
    if not stepped.published:
        faults.append("the sampler was not proven to have the new weights")
    return faults
