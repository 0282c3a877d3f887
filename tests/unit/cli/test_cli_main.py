"""The command line starts fast, imports nothing heavy, and turns mistakes into messages and exit codes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.command import heavy_imports, processor_seconds, run_strop, source_environment

TRAINING = ("train", "sft", "dpo", "ipo", "kto")
COMMANDS = (*TRAINING, "eval", "generate", "grade", "samples", "export", "doctor", "config", "bench")
RUN_FILE = """
[model]
path = "some/model"
[data]
task = "gsm8k"
source = { type = "jsonl", path = "rows.jsonl" }
"""


def test_help_lists_every_command() -> None:
    result = run_strop("--help")
    assert result.returncode == 0
    listed = [line.split()[0] for line in result.stdout.split("Commands:")[1].splitlines() if line.strip()]
    assert tuple(listed) == COMMANDS


def test_help_answers_in_half_a_second() -> None:
    assert min(processor_seconds("--help") for _ in range(5)) < 0.5


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = run_strop(command, "--help")
    assert result.returncode == 0
    assert "Usage: strop" in result.stdout


@pytest.mark.parametrize("arguments", [("--help",), ("train", "--help"), ("config",), ("config", "training", "--json")])
def test_help_and_config_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert heavy_imports(*arguments) == []


def test_a_config_error_comes_before_any_heavy_import(tmp_path: Path) -> None:
    run_file = tmp_path / "run.toml"
    run_file.write_text(RUN_FILE)
    assert heavy_imports("train", str(run_file), "run.stepz=3") == []
    assert heavy_imports("train", str(run_file), "rollout.group_size=1") == []
    assert heavy_imports("sft", str(run_file), "run.stepz=3") == []


def test_a_config_error_is_a_message_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN_FILE)
    result = run_strop("train", "run.toml", "training.learning_rat=1", folder=tmp_path)
    assert result.returncode == 2
    assert "training.learning_rat is not a key; did you mean training.learning_rate?" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_refused_combination_is_a_message_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN_FILE)
    result = run_strop("eval", "run.toml", "rollout.group_size=1", folder=tmp_path)
    assert result.returncode == 2
    assert "rollout.group_size must be at least 2" in result.stderr
    assert "Set rollout.group_size to 8" in result.stderr


def test_a_missing_run_file_is_a_message() -> None:
    result = run_strop("train", "no-such.toml")
    assert result.returncode == 2
    assert "no-such.toml" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_traceback_can_be_asked_for() -> None:
    result = run_strop("train", "no-such.toml", variables={"STROP_TRACEBACK": "1"})
    assert result.returncode != 0
    assert "Traceback" in result.stderr


def test_an_unknown_command_or_option_is_refused() -> None:
    assert run_strop("trein").returncode == 2
    assert run_strop("train", "run.toml", "--dryrun").returncode == 2


def test_the_shell_completes_commands_and_options() -> None:
    def completed(words: str, place: int) -> list[str]:
        variables = {"_STROP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        return run_strop(variables=variables).stdout.split()

    assert completed("strop tr", 1) == ["train"]
    assert "--dry-run" in completed("strop train --d", 2)


def test_ctrl_c_ends_with_130_and_leaves_no_process_behind(tmp_path: Path) -> None:
    doctor = subprocess.Popen(
        [sys.executable, "-m", "strop", "doctor"],
        cwd=tmp_path,
        env=source_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert doctor.stdout is not None
    for line in doctor.stdout:
        if "devices" in line:
            break
    time.sleep(0.5)
    doctor.send_signal(signal.SIGINT)
    assert doctor.wait(timeout=30) == 130
    with pytest.raises(ProcessLookupError):
        os.killpg(doctor.pid, 0)
