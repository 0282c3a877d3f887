"""Parameters, gradients and optimizer state of sharded models go elsewhere and come back without a trace."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from strop.training.fsdp2.engine import Fsdp2Engine
from support.ranks import spawn_ranks, whole
from support.tiny import tiny_groups, tiny_model
from support.training import ratio_loss, tiny_engine, tiny_plan

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SHARD_SIZES = {"sharded": None, "replicas": 1}


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def kept(engine: Fsdp2Engine) -> dict[str, Tensor]:
    """Every tensor that is there between two calls."""
    parameters = engine.optimizer.parameters
    gradients = {name: weight.grad for name, weight in parameters.items() if weight.grad is not None}
    kinds = {"parameter": parameters, "gradient": gradients, **engine.optimizer.state_tensors()}
    return {f"{kind} {name}": value for kind, tensors in kinds.items() for name, value in tensors.items()}


def learn(engine: Fsdp2Engine, *, moving: bool) -> dict[str, Tensor]:
    """Two updates; where it is moving, everything is elsewhere before, between gradient and step, and after."""

    def move() -> None:
        if not moving:
            return
        before = kept(engine)
        old = {name: local(value.detach()) for name, value in before.items()}  # held, so that no memory is used again
        engine._trained.relocate(torch.clone)
        after = kept(engine)
        assert after.keys() == before.keys()
        assert all(isinstance(after[name], DTensor) == isinstance(value, DTensor) for name, value in before.items())
        assert [
            name for name, value in old.items() if value.numel() and local(after[name]).data_ptr() == value.data_ptr()
        ] == []
        named = dict(engine.causal_lm.named_parameters())
        assert all(named[name] is weight for name, weight in engine.optimizer.parameters.items())

    rank = dist.get_rank() if dist.is_initialized() else 0
    for seed in range(2):
        plan = tiny_plan(tiny_groups(seed=seed), 20)
        move()
        engine.forward_backward(plan.of_rank(rank), ratio_loss)
        move()
        assert engine.optimizer_step().applied
    move()
    engine.score(plan.of_rank(rank))
    return {name: whole(value) for name, value in kept(engine).items()}


def work(rank: int, folder: Path) -> None:
    for dtype_name, dtype in DTYPES.items():
        for name, shard_size in SHARD_SIZES.items():
            found = []
            for moving in (False, True):
                engine = tiny_engine(model=tiny_model("llama", dtype=dtype), shard_size=shard_size)
                found.append(learn(engine, moving=moving))
            torch.save(found, folder / f"{dtype_name}-{name}-{rank}.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moved")
    spawn_ranks(work, 2, folder, folder)
    return folder


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHARD_SIZES)
def test_two_processes_learn_the_same_whether_they_are_moved_or_not(folder: Path, dtype: str, name: str) -> None:
    for rank in range(2):
        expected, actual = torch.load(folder / f"{dtype}-{name}-{rank}.pt")
        assert any(key.startswith("master") for key in expected) == (dtype == "bfloat16")
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(actual[key], value, rtol=0, atol=0, msg=key)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_process_learns_the_same_whether_it_is_moved_or_not(dtype: str) -> None:
    expected, actual = (
        learn(tiny_engine(model=tiny_model("llama", dtype=DTYPES[dtype])), moving=moving) for moving in (False, True)
    )
    for key, value in expected.items():
        torch.testing.assert_close(actual[key], value, rtol=0, atol=0, msg=key)
