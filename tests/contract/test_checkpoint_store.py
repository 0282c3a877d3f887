"""What every checkpoint store must keep to: a step is whole or absent, and the newest whole one is found."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strop.checkpoint import (
    BestRule,
    DiskFullError,
    FolderStore,
    FormatVersionError,
    ModelIdentity,
    StatePart,
    WrongModelError,
)
from strop.errors import CheckpointError
from strop.records import WeightChunk

SRC = Path(__file__).parents[2] / "src"


@dataclass
class Weights:
    """A part with one binary file."""

    values: np.ndarray = field(default_factory=lambda: np.zeros(4))
    loads: int = 0

    def save(self, folder: Path) -> None:
        np.save(folder / "weights.npy", self.values)

    def load(self, folder: Path) -> None:
        self.values = np.load(folder / "weights.npy")
        self.loads += 1


@dataclass
class Counters:
    state: dict[str, Any]

    def part(self) -> StatePart:
        return StatePart(lambda: self.state, self._restore)

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)


class Failing:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def save(self, folder: Path) -> None:
        (folder / "half.bin").write_bytes(b"half")
        raise self.error

    def load(self, folder: Path) -> None:
        raise AssertionError


def at(value: float) -> dict[str, Any]:
    return {"engine": Weights(np.full(4, value)), "trainer": Counters({"step": value}).part()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def identity(**shapes: tuple[int, ...]) -> ModelIdentity:
    return ModelIdentity.of(WeightChunk(name, torch.zeros(shape), 0) for name, shape in shapes.items())


def test_what_was_saved_is_restored(tmp_path: Path) -> None:
    FolderStore(tmp_path, keep=2).save(3, at(0.1))
    weights, counters = Weights(), Counters({})
    restored = FolderStore(tmp_path, keep=2).restore({"engine": weights, "trainer": counters.part()})
    assert restored is not None
    assert restored.manifest.step == 3
    assert (weights.values == 0.1).all()
    assert counters.state == {"step": 0.1}


def test_an_empty_store_has_no_latest(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "new" / "folder", keep=1)
    assert store.latest() is None
    assert store.restore({"engine": Weights()}) is None


def test_the_newest_steps_are_kept_and_counted_after_a_resume_too(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=2)
    for step in (1, 2, 3):
        store.save(step, at(step))
    resumed = FolderStore(tmp_path, keep=2)
    resumed.save(4, at(4))
    assert names(tmp_path) == ["step-00000003", "step-00000004"]


def test_the_best_step_is_never_removed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=1, best=BestRule("eval/reward_mean"))
    for step, score in ((1, 0.2), (2, 0.9), (3, 0.5), (4, float("nan"))):
        store.save(step, at(step), scores={"eval/reward_mean": score})
    FolderStore(tmp_path, keep=1, best=BestRule("eval/reward_mean")).save(5, at(5))
    assert names(tmp_path) == ["step-00000002", "step-00000005"]
    assert store.best() == tmp_path / "step-00000002"


def test_the_lowest_can_be_best_and_a_better_one_frees_the_one_before(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=1, best=BestRule("eval/loss", "lowest"))
    for step, score in ((1, 0.5), (2, 0.9), (3, 0.1), (4, 0.3)):
        store.save(step, at(step), scores={"eval/loss": score})
    assert names(tmp_path) == ["step-00000003", "step-00000004"]


def test_an_old_step_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=1)
    store.save(1, at(1))
    seen: list[list[str]] = []

    class Looking(Weights):
        def save(self, folder: Path) -> None:
            super().save(folder)
            seen.append(names(tmp_path))

    store.save(2, {"engine": Looking()})
    assert seen == [[".saving-step-00000002", "step-00000001"]]
    assert names(tmp_path) == ["step-00000002"]


@pytest.mark.parametrize("error", [ValueError("bug"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_nothing_and_the_old_step_loads(tmp_path: Path, error: BaseException) -> None:
    store = FolderStore(tmp_path, keep=1)
    store.save(1, at(1))
    with pytest.raises(type(error)):
        store.save(2, {"engine": Weights(), "trainer": Failing(error)})
    assert names(tmp_path) == ["step-00000001"]
    assert store.latest() == tmp_path / "step-00000001"


@pytest.mark.parametrize("file", ["engine/weights.npy", "trainer/state.json", "manifest.json"])
@pytest.mark.parametrize("harm", [damage, Path.unlink], ids=["one bit flipped", "missing"])
def test_a_damaged_newest_step_falls_back_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, harm: Any
) -> None:
    store = FolderStore(tmp_path, keep=2)
    store.save(1, at(1))
    harm(store.save(2, at(2)) / file)
    resumed = FolderStore(tmp_path, keep=2)
    assert resumed.latest() == tmp_path / "step-00000001"
    assert "DAMAGED CHECKPOINT" in caplog.text
    assert str(tmp_path / "step-00000002" / file) in caplog.text


def test_a_damaged_step_does_not_count_among_those_kept(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=2)
    store.save(1, at(1))
    damage(store.save(2, at(2)) / "engine" / "weights.npy")
    resumed = FolderStore(tmp_path, keep=2)
    resumed.latest()
    resumed.save(3, at(3))
    assert names(tmp_path) == ["step-00000001", "step-00000003"]


def test_a_run_whose_steps_are_all_damaged_does_not_start_afresh_silently(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=2)
    damage(store.save(1, at(1)) / "engine" / "weights.npy")
    with pytest.raises(CheckpointError, match="none is whole"):
        store.latest()


def test_a_run_that_went_back_finds_its_own_last_save(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=3)
    store.save(10, at(10))
    store.save(20, at(20))
    store.save(15, at(15))
    assert store.latest() == tmp_path / "step-00000015"


def test_a_step_is_replaced_by_a_later_save_of_the_same_step(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=1)
    store.save(1, at(1))
    store.save(1, at(7))
    weights = Weights()
    store.restore({"engine": weights})
    assert (weights.values == 7).all()
    assert names(tmp_path) == ["step-00000001"]


def test_leftovers_of_killed_saves_are_cleared_at_the_start(tmp_path: Path) -> None:
    FolderStore(tmp_path, keep=2).save(1, at(1))
    for name in (".saving-step-00000002", ".removing-step-00000000", ".replaced-step-00000001"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.bin").write_bytes(b"half")
    FolderStore(tmp_path, keep=2)
    assert names(tmp_path) == ["step-00000001"]


def test_a_kill_between_the_two_renames_of_a_replacement_loses_nothing(tmp_path: Path) -> None:
    FolderStore(tmp_path, keep=1).save(1, at(1))
    (tmp_path / "step-00000001").rename(tmp_path / ".replaced-step-00000001")
    assert FolderStore(tmp_path, keep=1).latest() == tmp_path / "step-00000001"


def test_another_process_neither_clears_nor_saves_under_a_running_save(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, keep=1)
    inside, leave = threading.Event(), threading.Event()

    class Slow(Weights):
        def save(self, folder: Path) -> None:
            inside.set()
            leave.wait(10)
            super().save(folder)

    saving = threading.Thread(target=store.save, args=(1, {"engine": Slow()}))
    saving.start()
    inside.wait(10)
    other = FolderStore(tmp_path, keep=1)
    with pytest.raises(CheckpointError, match="another process is saving"):
        other.save(2, at(2))
    leave.set()
    saving.join()
    assert other.latest() == tmp_path / "step-00000001"


def test_a_checkpoint_of_another_model_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    FolderStore(tmp_path, keep=1, model=identity(head=(4, 2))).save(1, at(1))
    weights = Weights()
    with pytest.raises(WrongModelError, match=r"1 weights with 12 parameters.*got 1 weights with 8 parameters"):
        FolderStore(tmp_path, keep=1, model=identity(head=(4, 3))).restore({"engine": weights})
    assert weights.loads == 0
    assert FolderStore(tmp_path, keep=1, model=identity(head=(4, 2))).restore({"engine": weights}) is not None


def test_a_model_is_known_by_names_and_shapes_in_any_order() -> None:
    assert identity(a=(1, 2), b=(3,)) == identity(b=(3,), a=(1, 2))
    assert identity(a=(1, 2)).digest != identity(a=(2, 1)).digest
    assert identity(a=(2,)).digest != identity(b=(2,)).digest


def test_a_part_that_the_step_lacks_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    FolderStore(tmp_path, keep=1).save(1, at(1))
    weights = Weights()
    with pytest.raises(CheckpointError, match=r"must hold the parts \['prompts'\], got \['engine', 'trainer'\]"):
        FolderStore(tmp_path, keep=1).restore({"engine": weights, "prompts": Weights()})
    assert weights.loads == 0


def test_a_newer_format_is_refused_not_passed_over(tmp_path: Path) -> None:
    path = FolderStore(tmp_path, keep=1).save(1, at(1)) / "manifest.json"
    body = {**json.loads(path.read_text()), "format_version": 2}
    del body["checksum"]
    checksum = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"checksum": checksum, **body}))
    with pytest.raises(FormatVersionError, match="format 2; this version of strop reads format 1"):
        FolderStore(tmp_path, keep=1).latest()


def test_a_state_that_its_owner_refuses_is_named_with_the_reason(tmp_path: Path) -> None:
    def refuse(state: Mapping[str, Any]) -> None:
        raise ValueError(f"step must be 2, got {state['step']}")

    store = FolderStore(tmp_path, keep=1)
    store.save(1, {"trainer": StatePart(lambda: {"step": 1}, refuse)})
    with pytest.raises(CheckpointError, match=r"trainer cannot be resumed: step must be 2, got 1"):
        store.restore({"trainer": StatePart(dict, refuse)})


@pytest.mark.parametrize("name", ["../up", "Engine", "", "manifest.json"])
def test_a_part_s_name_must_be_a_plain_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="part's name must be"):
        FolderStore(tmp_path, keep=1).save(1, {name: Weights()})


def test_a_link_is_refused_since_its_target_is_not_kept(tmp_path: Path) -> None:
    class Linking(Weights):
        def save(self, folder: Path) -> None:
            (folder / "model").symlink_to("/etc")

    with pytest.raises(ValueError, match="write a copy instead of a link"):
        FolderStore(tmp_path, keep=1).save(1, {"engine": Linking()})


def test_at_least_one_step_must_be_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep must be at least 1, got 0"):
        FolderStore(tmp_path, keep=0)


# ------------------------------------------------------------------------------------------- full disk

FULL_DISK = """
    import resource, sys
    from pathlib import Path
    import torch
    from strop.checkpoint import DiskFullError, FolderStore

    class Tensors:
        def __init__(self, num_bytes):
            self.num_bytes = num_bytes
        def save(self, folder):
            torch.save({"w": torch.ones(self.num_bytes, dtype=torch.uint8)}, folder / "weights.pt")
        def load(self, folder):
            torch.load(folder / "weights.pt")

    folder, limit = Path(sys.argv[1]), int(sys.argv[2])
    store = FolderStore(folder, keep=1)
    store.save(1, {"engine": Tensors(100_000)})
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        store.save(2, {"engine": Tensors(8_000_000)})
    except DiskFullError as error:
        print(error)
        store.restore({"engine": Tensors(0)})
        print(sorted(path.name for path in folder.iterdir() if path.name != ".lock"))
"""


def run_child(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def assert_says_full(result: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert result.returncode == 0, result.stderr
    message, left = result.stdout.strip().rsplit("\n", 1)
    assert f"no space for a checkpoint in {folder}" in message
    assert "the last checkpoint took 101," in message
    assert "were free" in message
    assert "run.output_dir" in message
    assert left == "['step-00000001']"


def test_a_file_size_limit_reads_as_a_full_disk_and_the_old_step_loads(tmp_path: Path) -> None:
    assert_says_full(run_child(FULL_DISK, str(tmp_path), "1000000"), tmp_path)


def test_a_full_file_system_is_said_so_and_the_old_step_loads(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        assert_says_full(run_child(FULL_DISK, str(tmp_path), "0"), tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# ------------------------------------------------------------------------------------------- kill -9

SAVE_UNTIL_KILLED = """
    import os, sys
    from pathlib import Path
    import numpy as np
    from strop.checkpoint import FolderStore, StatePart

    class Weights:
        def __init__(self, step):
            self.step = step
        def save(self, folder):
            for name in ("a", "b"):
                np.save(folder / f"{name}.npy", np.full(30_000, self.step))
        def load(self, folder):
            self.step = int(np.load(folder / "a.npy")[0])

    def save_forever():
        store = FolderStore(Path(sys.argv[1]), keep=1)
        weights = Weights(0)
        store.restore({"engine": weights})
        print("pid", os.getpid(), flush=True)
        while True:
            weights.step += 1
            state = StatePart(lambda: {"step": weights.step}, lambda _: None)
            store.save(weights.step, {"engine": weights, "trainer": state})
            print("saved", weights.step, flush=True)

    for _ in sys.stdin:
        child = os.fork()
        if not child:
            save_forever()
        os.waitpid(child, 0)
        print("dead", 0, flush=True)
"""


def save_for(parent: "subprocess.Popen[str]", seconds: float) -> list[int]:
    """Lets a fresh child save, kills it after some time, and returns the steps that it reported."""
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("go\n")
    parent.stdin.flush()
    word, child = parent.stdout.readline().split()
    assert word == "pid"
    time.sleep(seconds)
    os.kill(int(child), signal.SIGKILL)
    lines = iter(parent.stdout.readline, "dead 0\n")
    return [int(line.split()[1]) for line in lines]


def test_kill_9_at_any_moment_leaves_the_last_whole_step_or_the_one_before(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(SAVE_UNTIL_KILLED), str(tmp_path)]
    random = np.random.default_rng(0)
    done, leftovers = 0, 0
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        for _ in range(20):
            reported = (save_for(parent, random.uniform(0, 0.05)) or [done])[-1]
            leftovers += any(name.startswith(".") for name in names(tmp_path))
            state: dict[str, Any] = {"step": 0}
            restored = FolderStore(tmp_path, keep=1).restore({"trainer": StatePart(dict, state.update)})
            done = 0 if restored is None else restored.manifest.step
            assert done == state["step"]
            assert done in (reported, reported + 1)
        assert parent.stdin is not None
        parent.stdin.close()
    assert done > 0
    assert leftovers > 0, "no kill fell into a save: the test saw nothing"


def test_disk_full_is_a_checkpoint_error() -> None:
    assert issubclass(DiskFullError, CheckpointError)
