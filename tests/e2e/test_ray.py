"""Runs on Ray, here on one machine: they are what they are in one process, and end in bounded time whoever dies."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strop.api import train
from strop.config.root import Config
from strop.errors import ConfigError
from support.command import source_environment
from support.runs import (
    assert_same_run,
    assert_same_tensors,
    checkpoint_tensors,
    stored_metrics,
    stored_samples,
    tiny_run,
    write_run_file,
)

pytest.importorskip("ray", reason="needs the extra `ray`")

END_SECONDS = 60
"""Within which a run must end whose role died."""


def config_of(folder: Path, kind: str, name: str, **sections: Any) -> Config:
    base: dict[str, dict[str, Any]] = {
        "run": {"steps": 3, "name": name},
        "algorithm": {"kl_coefficient": 0.1},
        "cluster": {"type": kind, **sections.pop("cluster", {})},
    }
    rewards = {key: sections.pop(key) for key in ("reward", "arguments") if key in sections}
    for key, section in sections.items():
        base[key] = {**base.get(key, {}), **section}
    return tiny_run(folder, **rewards, **base)


def test_a_run_on_ray_is_the_run_in_one_process(tmp_path: Path) -> None:
    local = train(config_of(tmp_path, "local", "local")).folder
    remote = train(config_of(tmp_path, "ray", "remote", cluster={"trainer_cores": 1, "sampler_cores": 1})).folder
    assert_same_run(remote, local)
    logs = {path.name: path.read_text() for path in (remote / "logs").iterdir()}
    assert set(logs) == {"trainer-0.log", "sampler-0.log"}
    assert re.match(r"trainer-0 is process \d+ on ", logs["trainer-0.log"])


@pytest.mark.slow
def test_two_trainers_do_what_one_does_and_resume_on_another_number(tmp_path: Path) -> None:
    local = train(config_of(tmp_path, "local", "local")).folder
    two = {"trainers": 2, "trainer_cores": 1, "sampler_cores": 1}
    train(config_of(tmp_path, "ray", "remote", run={"steps": 2}, cluster=two))
    remote = train(config_of(tmp_path, "ray", "remote", cluster={**two, "trainers": 1}), resume=True).folder
    expected, found = checkpoint_tensors(local), checkpoint_tensors(remote)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if name.startswith("parameters/"):
            assert float((found[name] - tensor).norm() / tensor.norm()) < 1e-5, name
    rewards = [[line["reward/mean"] for line in stored_metrics(folder)[1:]] for folder in (local, remote)]
    assert rewards[0] == rewards[1]


@pytest.mark.slow
def test_ppo_runs_on_ray(tmp_path: Path) -> None:
    folders = [
        train(config_of(tmp_path, kind, kind, algorithm={"name": "ppo", "kl_coefficient": 0.0})).folder
        for kind in ("local", "ray")
    ]
    assert_same_run(*folders)


@pytest.mark.parametrize("kind", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_several_samplers_draw_what_one_draws(tmp_path: Path, kind: str) -> None:
    """5 prompts x 3 samples on 2 samplers: tokens belong to the sample, not to who draws them."""
    shape = {"prompts_per_step": 5, "group_size": 3}
    one = train(config_of(tmp_path, "local", "one", rollout=shape)).folder
    two = train(config_of(tmp_path, kind, "two", rollout={**shape, "replicas": 2})).folder
    assert_same_tensors(checkpoint_tensors(two), checkpoint_tensors(one))
    assert stored_samples(two) == stored_samples(one)
    assert [line["rollout/requests"] for line in stored_metrics(two)[1:]] == [5, 5, 5]


# ------------------------------------------------------------------------------------------ what cannot be


def test_more_than_there_is_is_refused_before_any_model_is_read(tmp_path: Path) -> None:
    config = config_of(tmp_path, "ray", "big", cluster={"trainers": 500, "trainer_cores": 100, "placement": "split"})
    with pytest.raises(ConfigError, match=r"the cluster must have 50\d\d\d cores .*got \d+ cores"):
        train(config)
    assert not (tmp_path / "runs" / "big").exists()


def test_an_address_that_nobody_answers_at_is_refused_in_seconds(tmp_path: Path) -> None:
    config = config_of(tmp_path, "ray", "far", cluster={"address": "127.0.0.1:1"})
    started = time.monotonic()
    with pytest.raises(
        ConfigError, match=r"cluster.address must be that of a Ray cluster that runs, got '127.0.0.1:1'"
    ):
        train(config)
    assert time.monotonic() - started < END_SECONDS


# ------------------------------------------------------------------------------------------ who dies


def started_run(folder: Path, **sections: Any) -> "tuple[subprocess.Popen[str], Callable[[str], int]]":
    """A long run in a process of its own, once it has trained a step, and the process of each role."""
    cluster = {"trainer_cores": 1, "sampler_cores": 1}
    config = config_of(folder, "ray", "run", run={"steps": 1000}, cluster=cluster, **sections)
    file = write_run_file(config, folder / "run.toml")
    process = subprocess.Popen(
        [sys.executable, "-m", "strop", "train", str(file)],
        cwd=folder,
        env=source_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    run = folder / "runs" / "run"
    deadline = time.monotonic() + 4 * END_SECONDS
    while not list((run / "checkpoints").glob("step-*")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)

    def pid_of(role: str) -> int:
        match = re.match(rf"{role} is process (\d+)", (run / "logs" / f"{role}.log").read_text())
        assert match is not None
        return int(match[1])

    return process, pid_of


@pytest.mark.slow
@pytest.mark.parametrize("role", ["trainer-0", "sampler-0"])
def test_a_run_whose_role_was_killed_ends_naming_it_and_resumes_exactly(tmp_path: Path, role: str) -> None:
    process, pid_of = started_run(tmp_path)
    os.kill(pid_of(role), signal.SIGKILL)
    output, _ = process.communicate(timeout=END_SECONDS)
    assert process.returncode not in (0, None)
    assert role in output
    run = tmp_path / "runs" / "run"
    steps = max(int(path.name.split("-")[1]) for path in (run / "checkpoints").glob("step-*")) + 2
    resumed = train(config_of(tmp_path, "ray", "run", run={"steps": steps}), resume=True).folder
    whole = train(config_of(tmp_path, "local", "whole", run={"steps": steps})).folder
    assert_same_run(resumed, whole)


@pytest.mark.slow
def test_the_other_samplers_redo_what_a_killed_one_was_asked(tmp_path: Path) -> None:
    slow = {"reward": "slow", "arguments": {"seconds": 0.5}}
    process, pid_of = started_run(tmp_path, rollout={"replicas": 2}, **slow)
    run = tmp_path / "runs" / "run"
    num_lines = len(stored_metrics(run))
    while len(stored_metrics(run)) == num_lines:
        time.sleep(0.05)
    time.sleep(0.7)  # in the middle of the next rollout, whose rewards take 1.5 seconds
    os.kill(pid_of("sampler-1"), signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS
    while not any(line.get("rollout/replicas_lost") == 1 for line in stored_metrics(run)):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=END_SECONDS)
    assert "sampler-1 is gone: its requests were redone by the others" in output
    steps = stored_metrics(run)[-1]["step"]
    whole = train(config_of(tmp_path, "local", "whole", run={"steps": steps}, **slow)).folder
    assert stored_samples(run) == stored_samples(whole)


@pytest.mark.slow
def test_nobody_is_left_behind_when_the_controller_is_killed(tmp_path: Path) -> None:
    process, pid_of = started_run(tmp_path)
    pids = [pid_of("trainer-0"), pid_of("sampler-0")]
    process.kill()
    process.wait()
    deadline = time.monotonic() + END_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "roles must end with their controller"
        time.sleep(0.2)
