"""One, two and four processes do the same update, with any micro-batches: the batch alone decides.

The one that is compared with is a single process that computes the whole mini-batch at once. Rows are shared out by
their cost: groups that do not divide, one far longer than the rest, fewer groups than processes, nothing for some.
"""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from strop.metrics import merge, values
from strop.records import Group
from support.ranks import Case, Job, Outcome, do_job, make_job, outcomes_of
from support.training import assert_gradients_close, relative_error
from support.update_half import AT_ONCE, sampled_groups

TOLERANCE = 1e-5
"""Relative Frobenius norm of each parameter's gradient, and relative for the loss, in float32."""
METRIC_TOLERANCE = 5e-5
"""Some metrics are exponentials of sums over whole samples."""
WEIGHT_TOLERANCE = 1e-4
"""AdamW's first step is nearly the sign of each element's gradient, however small."""
OF_THE_CUT = {"update/micro_batches", "update/micro_batches_over_budget"}
GRPO: dict[str, Any] = {"name": "grpo"}
GSPO: dict[str, Any] = {"name": "gspo"}
PPO: dict[str, Any] = {"name": "ppo"}
KL: dict[str, Any] = {"kl_coefficient": 0.2, "kl_estimator": "k3", "entropy_coefficient": 0.1}
CLIPPED: dict[str, Any] = {"max_gradient_norm": 1e-2}

CASES = {
    "even": Case("even", GRPO, AT_ONCE),
    "five_groups": Case("five", GRPO, 20),
    "a_long_group": Case("long", GRPO, 40),
    "fewer_groups_than_ranks": Case("few", GRPO, 1),
    "nothing_for_some": Case("least", GRPO, AT_ONCE),
    "clipped": Case("five", GRPO, AT_ONCE, CLIPPED),
    "kl_and_entropy": Case("five", KL, 30),
    "of_whole_samples": Case("five", GSPO, 1),
    "of_whole_samples_long": Case("long", GSPO, AT_ONCE),
    "of_whole_samples_least": Case("least", GSPO, 1),
    "with_a_critic": Case("five", PPO, 25, CLIPPED),
    "with_a_critic_long": Case("long", PPO, 1),
    "with_a_critic_least": Case("least", PPO, AT_ONCE),
    "checkpointed": Case("long", GRPO, 40, {"gradient_checkpointing": True}),
    "replicas": Case("five", PPO, 25, {"shard_size": 1, **CLIPPED}),
    "rows_alone": Case("five", PPO, 30, CLIPPED, family="qwen3_next"),
    "rows_alone_least": Case("least", GSPO, AT_ONCE, family="qwen3_next"),
    "experts": Case("five", GRPO, 25, family="qwen3_moe"),
    "adapters": Case("five", GRPO, 25, CLIPPED, lora=True),
}
ON_FOUR = {
    "replicas_of_two": Case("five", PPO, 25, {"shard_size": 2, **CLIPPED}),
    "replicas_of_two_least": Case("least", GRPO, AT_ONCE, {"shard_size": 2}),
    "adapters_in_replicas_of_two": Case("few", GRPO, 25, {"shard_size": 2, **CLIPPED}, lora=True),
}
RANKS = (1, 2, 4)
RUNS = [(num_ranks, name) for num_ranks in RANKS for name in ({**CASES, **ON_FOUR} if num_ranks == 4 else CASES)]


@functools.cache
def batch(name: str) -> list[Group]:
    match name:
        case "even":
            return sampled_groups(num_groups=4, group_size=4)
        case "five":
            return sampled_groups(seed=1, num_groups=5, group_size=3)
        case "few":
            return sampled_groups(seed=2, num_groups=2, group_size=4)
        case "least":
            return sampled_groups(seed=3, num_groups=1, group_size=2)
        case "long":
            return sampled_groups(seed=4, num_groups=3, group_size=3, sampled_tokens=(1, 60))
    raise ValueError(name)


def case_of(num_ranks: int, name: str) -> Case:
    """One process has no part of a model to hold."""
    case = {**CASES, **ON_FOUR}[name]
    training = {key: value for key, value in case.training.items() if key != "shard_size"}
    return case if num_ranks > 1 else replace(case, training=training)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Job]]:
    folder = tmp_path_factory.mktemp("jobs")
    return {
        num_ranks: {
            name: make_job(
                case_of(num_ranks, name),
                batch(case_of(num_ranks, name).batch),
                num_ranks,
                folder / f"{num_ranks}-{name}",
            )
            for count, name in RUNS
            if count == num_ranks
        }
        for num_ranks in RANKS
    }


@pytest.fixture(scope="module")
def outcomes(
    jobs: dict[int, dict[str, Job]], tmp_path_factory: pytest.TempPathFactory
) -> dict[int, dict[str, list[Outcome]]]:
    folder = tmp_path_factory.mktemp("ranks")
    return {num_ranks: outcomes_of(jobs[num_ranks], num_ranks, folder) for num_ranks in RANKS}


@functools.cache
def expected(name: str, folder: Path) -> Outcome:
    """What one process does that computes everything at once."""
    case = case_of(1, name)
    return do_job(make_job(replace(case, max_tokens=AT_ONCE), batch(case.batch), 1, folder / name), 0)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one")


@pytest.mark.parametrize(("num_ranks", "name"), RUNS)
def test_processes_do_what_one_does(
    outcomes: dict[int, dict[str, list[Outcome]]], one_process: Path, num_ranks: int, name: str
) -> None:
    found, wanted = outcomes[num_ranks][name], expected(name, one_process)
    assert_same(found, wanted)
    assert (wanted.critic is not None) == (case_of(1, name).algorithm == PPO)
    if wanted.critic is not None:
        assert_same([outcome.critic for outcome in found if outcome.critic is not None], wanted.critic)


def assert_same(found: list[Outcome], wanted: Outcome) -> None:
    merged = values(merge(outcome.metrics for outcome in found))
    whole = values(wanted.metrics)
    assert merged.keys() == whole.keys()
    for key in whole.keys() - OF_THE_CUT:
        tolerance = TOLERANCE if key.endswith("/loss") else METRIC_TOLERANCE
        assert merged[key] == pytest.approx(whole[key], rel=tolerance, abs=TOLERANCE), key
    norm = torch.cat([gradient.double().flatten() for gradient in wanted.gradients.values()]).norm()
    assert wanted.report.applied
    for outcome in found:
        assert outcome.report.applied
        assert outcome.report.gradient_norm == pytest.approx(float(norm), rel=TOLERANCE)
        assert_gradients_close(outcome.gradients, wanted.gradients, TOLERANCE)
        assert_gradients_close(outcome.momenta, wanted.momenta, 2 * TOLERANCE)
        for key, weight in wanted.weights.items():
            assert relative_error(outcome.weights[key], weight) < WEIGHT_TOLERANCE, key


def test_every_process_has_its_own_part(jobs: dict[int, dict[str, Job]]) -> None:
    for num_ranks, by_name in jobs.items():
        for name, job in by_name.items():
            parts = [job.plan.of_rank(rank) for rank in range(num_ranks)]
            assert sum(part.num_targets for part in parts) == job.plan.num_targets, name
            busy = sum(bool(part.micro_batches) for part in parts)
            assert busy == (min(2, num_ranks) if job.case.batch == "least" else num_ranks), (num_ranks, name)


def test_clipping_took_hold(one_process: Path) -> None:
    clipped = expected("clipped", one_process)
    assert clipped.report.gradient_norm > 2 * CLIPPED["max_gradient_norm"]
    name, gradient = next(iter(clipped.gradients.items()))
    assert clipped.momenta[name].norm() < 0.5 * 0.1 * gradient.norm()
