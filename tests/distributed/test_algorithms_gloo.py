"""What an algorithm fixes over a whole mini-batch is shared out to two processes, and their update is that of one.

Each process prepares the whole mini-batch: sequence ratios, corrections that are normalised over it, tokens that are
chosen over it, the reference's likeliest tokens. Then it computes every other micro-batch.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from strop.metrics import merge, values
from strop.records import Group, MicroBatchPlan, Row
from strop.trainers.step import prepare_update
from strop.training.fsdp2.sharding import full_tensor
from support.training import relative_error
from support.update_half import ready_plan, resolved, sampled_groups, step_settings, update_roles

CASES: dict[str, dict[str, Any]] = {
    "gspo with normalised weights of sequences": {
        "name": "gspo",
        "clip_low": 0.05,
        "clip_high": 0.05,
        "correction": {"weight": "sequence", "normalise": True},
    },
    "clip_cov": {"name": "clip_cov", "covariance_share": 0.2, "covariance_low": -9.0, "covariance_high": 9.0},
    "kl_cov": {"name": "kl_cov", "covariance_share": 0.2},
    "full kl": {"kl_coefficient": 0.2, "kl_estimator": "full", "kl_top_k": 8, "entropy_coefficient": 0.1},
}


def groups_of_an_older_policy() -> list[Group]:
    """The old policy's log-probs are on the rows, a tenth away from those of the model."""
    rng = np.random.default_rng(5)

    def aged(row: Row) -> Row:
        old = row.rollout_logprobs + 0.1 * rng.normal(size=row.num_tokens)
        return row.with_fields(old_logprobs=np.where(row.loss_mask, old, 0.0).astype(np.float32))

    return [
        group.with_samples([replace(sample, rows=tuple(map(aged, sample.rows))) for sample in group.samples])
        for group in sampled_groups()
    ]


def update(case: str, groups: list[Group], share: slice) -> dict[str, Any]:
    """Takes the gradient of a share of the micro-batches."""
    roles = update_roles(resolved(**CASES[case]))
    plan = ready_plan(roles, prepare_update(roles, step_settings(25, epochs=2), groups))
    assert len(plan.micro_batches) > 2
    metrics = roles.policy.forward_backward(MicroBatchPlan(plan.micro_batches[share]), roles.algorithm.loss)
    gradients = {
        name: full_tensor(weight.grad).clone()
        for name, weight in roles.policy.causal_lm.named_parameters()
        if weight.grad is not None
    }
    return {"metrics": metrics, "gradients": gradients, "norm": roles.policy.optimizer_step().gradient_norm}


def work(rank: int, folder: Path, groups: list[Group]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        for case in CASES:
            torch.save(update(case, groups, slice(rank, None, 2)), folder / f"{case}-rank{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left behind: a result a process, for every case."""
    folder = tmp_path_factory.mktemp("gloo")
    mp.spawn(work, (folder, groups_of_an_older_policy()), nprocs=2)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one(folder: Path, case: str) -> None:
    expected = update(case, groups_of_an_older_policy(), slice(None))
    results = [torch.load(folder / f"{case}-rank{rank}.pt", weights_only=False) for rank in range(2)]
    merged = values(merge(result["metrics"] for result in results))
    assert merged == pytest.approx(values(expected["metrics"]), rel=1e-5, abs=1e-6)
    for result in results:
        assert result["norm"] == pytest.approx(expected["norm"], rel=1e-5)
        assert result["gradients"].keys() == expected["gradients"].keys()
        for name, gradient in expected["gradients"].items():
            assert relative_error(result["gradients"][name], gradient) < 1e-5, name
