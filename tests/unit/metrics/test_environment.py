"""The facts of a run are JSON and name what is needed to repeat it."""

import json
import subprocess
import sys
from pathlib import Path

from strop.metrics.environment import git_state, write_facts


def test_the_facts_name_command_versions_and_machine(tmp_path: Path) -> None:
    write_facts(tmp_path / "environment.json")
    facts = json.loads((tmp_path / "environment.json").read_text())
    assert facts["command"][0] == sys.executable
    assert facts["packages"]["numpy"].count(".") == 2
    assert facts["cpu_count"] >= 1
    assert facts["memory_bytes"] > 2**28


def test_a_tracked_file_has_a_commit_and_an_installed_one_has_none(tmp_path: Path) -> None:
    tracked, installed = tmp_path / "tracked.py", tmp_path / "installed.py"
    for file in (tracked, installed):
        file.write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["add", tracked.name], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *arguments], check=True)
    tracked.write_text("changed")
    state = git_state(tracked)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["changed_files"] == ["tracked.py"]
    assert git_state(installed) is None
