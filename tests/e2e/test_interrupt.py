"""Ctrl-C: the first ends a run cleanly and `--resume` goes on from it; the second ends it at once."""

import time
from pathlib import Path

import pytest

from strop.api import train
from strop.config.root import Config
from support.children import Child
from support.runs import SLOW_REWARD_MARK, assert_same_run, held_out, newest_checkpoint, tiny_run, write_run_file

INTERRUPTED = 130


def slow_run(folder: Path, name: str, **arguments: float) -> Config:
    """A run whose rewards take their time, where one can press Ctrl-C."""
    return tiny_run(folder, run={"steps": 3, "name": name}, reward="slow", arguments=arguments)


def start(folder: Path, config: Config, *options: str) -> Child:
    run_file = write_run_file(config, folder / "run.toml")
    return Child(["train", str(run_file), *options], folder / f"output{'-'.join(options)}.txt")


def run_folder(config: Config) -> Path:
    return config.run.output_dir / config.run.name


def wait_for_marks(child: Child, count: int) -> None:
    deadline = time.monotonic() + 60
    while child.output.count(SLOW_REWARD_MARK) < count:
        assert time.monotonic() < deadline, child.output
        time.sleep(0.01)


@pytest.mark.parametrize("marks", [1, 8], ids=["in_the_first_step", "in_the_second_step"])
def test_the_first_ends_with_a_checkpoint_and_the_resumed_run_is_the_undisturbed_one(
    tmp_path: Path, marks: int
) -> None:
    whole = train(slow_run(tmp_path, "whole")).folder
    config = slow_run(tmp_path, "stopped")
    child = start(tmp_path, config)
    wait_for_marks(child, marks)
    pressed = time.monotonic()
    child.interrupt()
    assert child.wait() == INTERRUPTED, child.output
    assert time.monotonic() - pressed < 10
    assert "Ctrl-C again stops at once" in child.output
    assert "--resume" in child.output
    assert newest_checkpoint(run_folder(config)).name == f"step-{(marks - 1) // 6:08d}"
    resumed = start(tmp_path, config, "--resume")
    assert resumed.wait() == 0, resumed.output
    assert_same_run(run_folder(config), whole)


def test_a_long_rollout_is_dropped_in_the_middle(tmp_path: Path) -> None:
    runs = [
        tiny_run(tmp_path, run={"steps": 1, "name": name}, rollout={"group_size": 16, "max_new_tokens": 250})
        for name in ("whole", "stopped")
    ]
    started = time.monotonic()
    whole = train(runs[0]).folder
    seconds = time.monotonic() - started
    child = start(tmp_path, runs[1])
    child.wait_for("run folder:")
    time.sleep(seconds / 4)
    pressed = time.monotonic()
    child.interrupt()
    assert child.wait() == INTERRUPTED, child.output
    assert time.monotonic() - pressed < max(1.0, seconds / 2)
    assert newest_checkpoint(run_folder(runs[1])).name == "step-00000000"
    resumed = start(tmp_path, runs[1], "--resume")
    assert resumed.wait() == 0, resumed.output
    assert_same_run(run_folder(runs[1]), whole)


def test_the_evaluation_before_the_first_step_is_dropped_and_repeated(tmp_path: Path) -> None:
    runs = [
        tiny_run(tmp_path, run={"steps": 1, "name": name}, reward="slow", evaluation=held_out(tmp_path, samples=8))
        for name in ("whole", "stopped")
    ]
    whole = train(runs[0]).folder
    child = start(tmp_path, runs[1])
    child.wait_for(SLOW_REWARD_MARK)
    child.interrupt()
    assert child.wait() == INTERRUPTED, child.output
    assert child.output.count(SLOW_REWARD_MARK) < 24
    resumed = start(tmp_path, runs[1], "--resume")
    assert resumed.wait() == 0, resumed.output
    assert_same_run(run_folder(runs[1]), whole)
    assert (run_folder(runs[1]) / "evaluations.json").read_text() == (whole / "evaluations.json").read_text()


def test_the_second_ends_at_once_and_the_checkpoint_before_is_whole(tmp_path: Path) -> None:
    config = slow_run(tmp_path, "stopped", seconds=1)
    child = start(tmp_path, config)
    child.wait_for(SLOW_REWARD_MARK)
    child.interrupt()
    child.wait_for("again stops at once")
    pressed = time.monotonic()
    child.interrupt()
    assert child.wait(timeout_seconds=20) == INTERRUPTED, child.output
    assert time.monotonic() - pressed < 5
    assert "Traceback" not in child.output
