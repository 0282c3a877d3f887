"""What any number of processes saves, any other number goes on from, bit for bit."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from strop.checkpoint.store import FolderStore
from strop.errors import CheckpointError
from strop.models.lora import attach_adapters
from strop.training.fsdp2.engine import Fsdp2Engine
from support.ranks import ADAPTERS, spawn_ranks, whole
from support.tiny import tiny_groups, tiny_model
from support.training import ratio_loss, tiny_engine, tiny_plan

KINDS = ("plain", "bfloat16", "adapters", "replicas")
COUNTS = (1, 2, 4)


def engine_of(kind: str) -> Fsdp2Engine:
    size = dist.get_world_size() if dist.is_initialized() else 1
    model = tiny_model("llama", dtype=torch.bfloat16 if kind == "bfloat16" else torch.float32)
    if kind == "adapters":
        attach_adapters(model, ADAPTERS)
    return tiny_engine(model=model, shard_size=max(1, size // 2) if kind == "replicas" else None)


def update(engine: Fsdp2Engine, seed: int) -> None:
    """One update; the first process computes all of it."""
    plan = tiny_plan(tiny_groups(seed=seed), 20)
    rank = dist.get_rank() if dist.is_initialized() else 0
    engine.forward_backward(plan.of_rank(rank), ratio_loss)
    assert engine.optimizer_step().applied


def everything(engine: Fsdp2Engine) -> dict[str, Tensor]:
    """What is trained and what the optimizer keeps, as whole tensors."""
    kinds = {"parameters": engine.optimizer.parameters, **engine.optimizer.state_tensors()}
    return {f"{kind}/{name}": whole(value) for kind, tensors in kinds.items() for name, value in tensors.items()}


def save_all(rank: int, folder: Path) -> None:
    for kind in KINDS:
        engine = engine_of(kind)
        update(engine, seed=0)
        engine.set_version(5)
        engine.save(folder / kind)
        found = everything(engine)
        if rank == 0:
            torch.save(found, folder.parent / f"{folder.name}-{kind}.pt")


def load_all(rank: int, folders: list[Path], file: Path) -> None:
    found = {}
    for folder, kind in itertools.product(folders, KINDS):
        engine = engine_of(kind)
        engine.load(folder / kind)
        assert engine.version == 5
        found[folder.name, kind, "loaded"] = everything(engine)
        update(engine, seed=1)
        found[folder.name, kind, "continued"] = everything(engine)
    if rank == 0:
        torch.save(found, file)


def run(work: Callable[..., None], num_ranks: int, folder: Path, *args: object) -> None:
    if num_ranks == 1:
        work(0, *args)
    else:
        spawn_ranks(work, num_ranks, folder, *args)


class OfRanks:
    """A part of a checkpoint that many processes write into one folder."""

    def __init__(self, num_ranks: int, workplace: Path) -> None:
        self.num_ranks = num_ranks
        self.workplace = workplace

    def save(self, folder: Path) -> None:
        named = self.workplace / f"saved-by-{self.num_ranks}"
        for kind in KINDS:
            (folder / kind).mkdir()
        named.symlink_to(folder)
        run(save_all, self.num_ranks, self.workplace, named)
        named.unlink()

    def load(self, folder: Path) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By number of processes, what they saved through a checkpoint store, which hashed it."""
    workplace = tmp_path_factory.mktemp("saved")
    folders = {}
    for num_ranks in COUNTS:
        store = FolderStore(workplace / f"store-of-{num_ranks}", keep=1)
        store.save(1, {"engine": OfRanks(num_ranks, workplace)})
        step = store.latest()
        assert step is not None
        folders[num_ranks] = workplace / f"by-{num_ranks}"
        folders[num_ranks].symlink_to(step / "engine")
    return folders


@pytest.fixture(scope="module")
def loaded(saved: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict]:
    workplace = tmp_path_factory.mktemp("loaded")
    for num_ranks in COUNTS:
        run(load_all, num_ranks, workplace, list(saved.values()), workplace / f"{num_ranks}.pt")
    return {num_ranks: torch.load(workplace / f"{num_ranks}.pt") for num_ranks in COUNTS}


@pytest.mark.parametrize(("saver", "loader"), list(itertools.product(COUNTS, COUNTS)))
def test_any_number_goes_on_from_what_any_number_saved(
    saved: dict[int, Path], loaded: dict[int, dict], saver: int, loader: int
) -> None:
    for kind in KINDS:
        expected = torch.load(saved[saver].parent / f"saved-by-{saver}-{kind}.pt")
        found = loaded[loader][f"by-{saver}", kind, "loaded"]
        assert found.keys() == expected.keys()
        assert {name.split("/")[0] for name in found} >= {"parameters", "exp_avg", "exp_avg_sq", "step"}
        assert any(name.startswith("master/") for name in found) == (kind == "bfloat16")
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            torch.testing.assert_close(found[name], value, rtol=0, atol=0, msg=f"{kind} {name}")
        continued = loaded[loader][f"by-{saver}", kind, "continued"]
        again = loaded[saver][f"by-{saver}", kind, "continued"]
        for name, value in again.items():
            tolerance = 5e-2 if kind == "bfloat16" else 1e-3
            torch.testing.assert_close(continued[name], value, rtol=tolerance, atol=tolerance * 0.1)


def test_every_process_writes_only_what_it_holds(saved: dict[int, Path]) -> None:
    whole_bytes = (saved[1] / "plain" / "parameters.safetensors").stat().st_size
    for num_ranks in (2, 4):
        files = sorted((saved[num_ranks] / "plain" / "parameters").iterdir())
        assert len(files) == num_ranks
        assert max(file.stat().st_size for file in files) < 1.5 * whole_bytes / num_ranks
        replicas = sorted((saved[num_ranks] / "replicas" / "parameters").iterdir())
        assert sum(file.stat().st_size for file in replicas) < 1.5 * whole_bytes


def test_a_missing_shard_is_named(saved: dict[int, Path], tmp_path: Path) -> None:
    shutil.copytree(saved[2] / "plain", tmp_path / "torn")
    next((tmp_path / "torn" / "parameters").glob("shard-00002*")).unlink()
    with pytest.raises(CheckpointError, match="must have shape"):
        engine_of("plain").load(tmp_path / "torn")


def save_where_one_cannot(rank: int, folder: Path) -> None:
    engine = engine_of("plain")
    with pytest.raises(CheckpointError, match="training process 1 could not write"):
        engine.save(folder)


def test_all_processes_hear_of_one_that_cannot_write(tmp_path: Path) -> None:
    folder = tmp_path / "blocked"
    (folder / "parameters" / "shard-00002-model-00001-of-00001.safetensors").mkdir(parents=True)
    spawn_ranks(save_where_one_cannot, 2, tmp_path, folder)
