"""A whole run from the command line, on a tiny model: dry run, train, refuse a second, samples, export."""

import json
from pathlib import Path

import pytest

from support.command import run_strop
from support.tiny import tiny_folder

RUN_FILE = """
[run]
name = "tiny"
steps = 1
threads = 1
[model]
path = "./llama-0"
[data]
task = "gsm8k"
source = { type = "jsonl", path = "rows.jsonl" }
[rollout]
prompts_per_step = 2
group_size = 2
max_new_tokens = 4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_folder(tmp_path)
    rows = [{"question": f"What is {n} plus {n}?", "answer": f"#### {2 * n}"} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "run.toml").write_text(RUN_FILE)
    return tmp_path


def test_a_dry_run_says_what_would_run_and_writes_nothing(folder: Path) -> None:
    result = run_strop("train", "run.toml", "--dry-run", folder=folder)
    assert result.returncode == 0, result.stderr
    assert "4 prompts" in result.stdout
    assert not (folder / "runs").exists()


def test_a_run_trains_is_not_overwritten_and_can_be_browsed_and_exported(folder: Path) -> None:
    trained = run_strop("train", "run.toml", folder=folder)
    assert trained.returncode == 0, trained.stderr
    again = run_strop("train", "run.toml", folder=folder)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    listed = run_strop("samples", "runs/tiny", "--json", folder=folder).stdout.splitlines()
    assert len(listed) == 4
    exported = run_strop("export", "runs/tiny", "out", folder=folder)
    assert exported.returncode == 0, exported.stderr
    assert (folder / "out" / "model.safetensors").is_file()
