"""Two processes with a share of the batch each do the update that one process does with all of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from strop.metrics import values
from strop.protocols import LossInputs, LossOutputs
from strop.records import Group, MicroBatchPlan
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.sharding import full_tensor
from strop.training.plan import plan_micro_batches
from support.tiny import tiny_groups
from support.training import all_keys, parameters, ratio_loss, relative_error, run_update, tiny_engine, uneven_weights

SHARES = {
    "even": (((0, 0), (0, 1), (0, 2)), ((1, 0), (1, 1), (1, 2))),
    "uneven": (((0, 0),), ((0, 1), (0, 2), (1, 0), (1, 1), (1, 2))),
    "one has nothing": (((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)), ()),
}


def candidate_loss(inputs: LossInputs) -> LossOutputs:
    """Adds to the unclipped policy gradient the probability of the two tokens that were the most likely ones."""
    probabilities_N = inputs.candidate_logprobs_NK.exp().sum(dim=1)
    return LossOutputs(ratio_loss(inputs).loss + (inputs.weights_N * probabilities_N).sum())


def make_plan(engine: Fsdp2Engine, groups: list[Group], keys: Sequence, max_tokens: int) -> MicroBatchPlan:
    """Scores the samples of `keys` for their candidates; the weights are those of the whole mini-batch."""
    plan = plan_micro_batches(groups, keys, uneven_weights(groups), max_tokens=max_tokens)
    return plan.with_field("candidate_ids", [scores.top_ids_NK for scores in engine.score(plan, top_k=2)])


def update(engine: Fsdp2Engine, keys: Sequence) -> dict:
    """Trains on the samples of `keys`."""
    metrics = engine.forward_backward(make_plan(engine, tiny_groups(), keys, 15), candidate_loss)
    gradients = {
        name: full_tensor(weight.grad).clone()
        for name, weight in engine.causal_lm.named_parameters()
        if weight.grad is not None
    }
    report = engine.optimizer_step()
    weights = {chunk.name: chunk.tensor.clone() for chunk in engine.export_weights()}
    return {
        "loss": values(metrics)["update/loss"],
        "gradients": gradients,
        "norm": report.gradient_norm,
        "applied": report.applied,
        "weights": weights,
    }


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        for case, shares in SHARES.items():
            engine = tiny_engine(candidates=True, gradient_checkpointing=case == "uneven")
            result = update(engine, shares[rank])
            (folder / case).mkdir(exist_ok=True)
            engine.save(folder / case)
            torch.save(result, folder / f"{case}-rank{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left behind: a result a process and a checkpoint, for every case."""
    folder = tmp_path_factory.mktemp("gloo")
    mp.spawn(work, (folder,), nprocs=2)
    return folder


@pytest.mark.parametrize("case", SHARES)
def test_two_processes_equal_one(folder: Path, case: str) -> None:
    engine = tiny_engine(candidates=True)
    expected = update(engine, tuple(all_keys(tiny_groups())))
    results = [torch.load(folder / f"{case}-rank{rank}.pt") for rank in range(2)]
    assert sum(result["loss"] for result in results) == pytest.approx(expected["loss"], rel=1e-5)
    for result in results:
        assert result["applied"]
        assert result["norm"] == pytest.approx(expected["norm"], rel=1e-4)
        for kind in ("gradients", "weights"):
            assert result[kind].keys() == expected[kind].keys()
            for name, value in expected[kind].items():
                assert relative_error(result[kind][name], value) < 1e-5, (kind, name)


def test_a_checkpoint_of_two_processes_continues_in_one(folder: Path) -> None:
    straight, resumed = tiny_engine(candidates=True), tiny_engine(candidates=True)
    keys = tuple(all_keys(tiny_groups()))
    update(straight, keys)
    resumed.load(folder / "even")
    groups = tiny_groups(seed=1)
    first, second = (
        run_update(engine, make_plan(engine, groups, all_keys(groups), 100), candidate_loss)
        for engine in (straight, resumed)
    )
    assert second.gradient_norm == pytest.approx(first.gradient_norm, rel=1e-4)
    expected, actual = parameters(straight), parameters(resumed)
    for name, value in expected.items():
        assert relative_error(actual[name], value) < 1e-4
