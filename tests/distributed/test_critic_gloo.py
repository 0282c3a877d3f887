"""Two processes with a share of the batch each teach a critic what one process teaches it with all of it."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from strop.metrics import merge, values
from strop.training.fsdp2.critic import Fsdp2Critic
from support.critic import critic_gradients, critic_weights, tiny_critic, value_plan, valued_groups
from support.training import all_keys, relative_error

ALL = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))
CASES = {
    "even": ((ALL[:3], ALL[3:]), torch.float32),
    "uneven": ((ALL[:1], ALL[1:]), torch.float32),
    "one has nothing": ((ALL, ()), torch.float32),
    "bfloat16": ((ALL[:3], ALL[3:]), torch.bfloat16),
}


def critic_of(case: str) -> Fsdp2Critic:
    return tiny_critic(dtype=CASES[case][1], head=False)


def update(critic: Fsdp2Critic, keys: tuple) -> dict:
    """Learns from the samples of `keys`; the weights are those of the whole mini-batch."""
    plan = value_plan(valued_groups(), 15, keys)
    found = critic.values(plan)
    metrics = critic.forward_backward(plan)
    gradients = critic_gradients(critic)
    report = critic.optimizer_step()
    assert report.applied
    weights = critic_weights(critic)
    scored = {"values": found, "norm": report.gradient_norm, "metrics": metrics}
    return {"gradients": gradients, "weights": weights, **scored}


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        for case, (shares, _) in CASES.items():
            critic = critic_of(case)
            critic.begin_from(folder / f"{case}-start")
            result = update(critic, shares[rank])
            critic.save(folder / f"{case}-end")
            torch.save(result, folder / f"{case}-rank{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes began from what one saved, and what they left behind."""
    folder = tmp_path_factory.mktemp("gloo")
    for case, (_, dtype) in CASES.items():
        for name in ("start", "end"):
            (folder / f"{case}-{name}").mkdir()
        tiny_critic(dtype=dtype).save(folder / f"{case}-start")
    mp.spawn(work, (folder,), nprocs=2)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one(folder: Path, case: str) -> None:
    critic = critic_of(case)
    critic.begin_from(folder / f"{case}-start")
    expected = update(critic, ALL)
    results = [torch.load(folder / f"{case}-rank{rank}.pt", weights_only=False) for rank in range(2)]
    tolerance = 1e-5 if case != "bfloat16" else 2e-2
    merged = values(merge(result["metrics"] for result in results))
    assert merged == pytest.approx(values(expected["metrics"]), rel=tolerance)
    for result in results:
        assert result["norm"] == pytest.approx(expected["norm"], rel=10 * tolerance)
        for kind in ("gradients", "weights"):
            assert result[kind].keys() == expected[kind].keys()
            for name, value in expected[kind].items():
                assert relative_error(result[kind][name], value) < tolerance, (kind, name)


def test_values_are_the_same_in_any_process(folder: Path) -> None:
    critic = critic_of("uneven")
    critic.begin_from(folder / "uneven-start")
    for rank, keys in enumerate(CASES["uneven"][0]):
        found = torch.load(folder / f"uneven-rank{rank}.pt", weights_only=False)["values"]
        expected = critic.values(value_plan(valued_groups(), 15, keys))
        assert len(found) == len(expected)
        for actual_N, expected_N in zip(found, expected, strict=True):
            torch.testing.assert_close(actual_N, expected_N, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_of_two_processes_continues_in_one(folder: Path) -> None:
    straight, resumed = critic_of("even"), critic_of("even")
    straight.begin_from(folder / "even-start")
    update(straight, ALL)
    resumed.load(folder / "even-end")
    groups = valued_groups(seed=1)
    for critic in (straight, resumed):
        critic.forward_backward(value_plan(groups, keys=all_keys(groups)))
        assert critic.optimizer_step().applied
    expected, actual = critic_weights(straight), critic_weights(resumed)
    for name, value in expected.items():
        assert relative_error(actual[name], value) < 1e-4
