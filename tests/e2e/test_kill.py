"""`kill -9` at any moment loses at most the step that was running; resumed, the run ends as if nothing had happened."""

import random
import time
from pathlib import Path

import pytest

from strop.api import train
from strop.config.root import Config
from support.children import Child
from support.runs import assert_same_run, held_out, stored_metrics, tiny_run, write_run_file

STEPS = 12
LONGEST_STEP_SECONDS = 0.2
"""About what a step takes here, with its checkpoint and its evaluation."""


def long_run(folder: Path, name: str) -> Config:
    return tiny_run(
        folder,
        rows=7,
        run={"steps": STEPS, "name": name},
        rollout={"max_new_tokens": 16},
        evaluation=held_out(folder, every=4),
    )


def wait_for_step(folder: Path, step: int) -> None:
    """Waits until the metrics of a step are written, by this life or an earlier one."""
    deadline = time.monotonic() + 60
    metrics = folder / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") > step):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def run_with_kills(config: Config, num_kills: int, rng: random.Random) -> list[str]:
    """Kills the run so often, resumes it to its end, and returns the last line of each life.

    The first kill falls while the run is being loaded, the others somewhere in steps that are drawn.
    """
    folder = config.run.output_dir / config.run.name
    run_file = write_run_file(config, folder.parent.parent / "run.toml")
    steps = [None, *sorted(rng.sample(range(1, STEPS - 1), num_kills - 1))]
    lives: list[str] = []
    for life, step in enumerate([*steps, STEPS]):
        resume = ["--resume"] if (folder / "config.toml").exists() else []
        child = Child(["train", str(run_file), *resume], folder.parent.parent / f"life-{life}.txt")
        if life == num_kills:
            assert child.wait() == 0, child.output
            return lives
        if step is not None:
            wait_for_step(folder, step)
        time.sleep(rng.uniform(0, LONGEST_STEP_SECONDS))
        assert child.kill(), child.output
        lives.append((child.output.splitlines() or ["nothing"])[-1])
    return lives


@pytest.mark.parametrize(
    ("num_kills", "seed"), [(2, 1), pytest.param(6, 2, marks=pytest.mark.slow)], ids=["two_kills", "six_kills"]
)
def test_a_killed_and_resumed_run_ends_like_an_undisturbed_one(tmp_path: Path, num_kills: int, seed: int) -> None:
    whole = train(long_run(tmp_path, "whole")).folder
    config = long_run(tmp_path, "killed")
    lives = run_with_kills(config, num_kills, random.Random(seed))
    killed = config.run.output_dir / "killed"
    assert [line["step"] for line in stored_metrics(killed)] == list(range(STEPS + 1)), lives
    assert_same_run(killed, whole)
    assert (killed / "evaluations.json").read_text() == (whole / "evaluations.json").read_text()
