"""The heartbeat says what a run waits for."""

import re
from pathlib import Path

import pytest

from strop.config.load import load_config
from support.effect import BASE
from support.evidence import override, train_run
from support.run_world import make_world


def test_a_rollout_that_only_waits_for_rewards_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path / "world")
    monkeypatch.setenv("STROP_CACHE", str(world / "cache"))
    changes = ["rewards.0.function=WORLD/rewards.py:slow", "metrics.heartbeat_seconds=0.05", "run.steps=1"]
    config = load_config(None, override([*BASE, "run.output_dir=WORLD/runs", *changes], world))
    evidence = train_run(config)
    assert evidence.error == ""
    assert re.search(r"\n\.\.\. rollout for \d+ s: waiting for rewards, \d+ tokens decoded so far", evidence.console)
