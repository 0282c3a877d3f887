"""The folder of one run, and who may write into it.

config.toml        the resolved config        environment.json   versions, machine, command
metrics.jsonl      one line a step            samples/           every sample of every step
checkpoints/       whole steps                evaluations.json   results before, during, after
user_files.json    digests of reward functions, losses and estimators in files of the user's
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import ConfigError

PER_PROMPT = "per_prompt"
"""Part of an evaluation that grows with the prompts."""
_WRITING = ".writing-"


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved config of the run."""
        return self.path / "config.toml"

    @property
    def checkpoints(self) -> Path:
        """Folder of the step folders."""
        return self.path / "checkpoints"

    @property
    def evaluations(self) -> Path:
        """Results of all evaluations by step."""
        return self.path / "evaluations.json"

    @property
    def environment(self) -> Path:
        """Facts about the machine and the versions."""
        return self.path / "environment.json"

    @property
    def user_files(self) -> Path:
        """Digests of the user's files that the run file names."""
        return self.path / "user_files.json"

    def open(self, *, overwrite: bool) -> None:
        """Makes the folder; with `overwrite` the run in it is removed first."""
        if overwrite and self.path.exists():
            _remove(self.path)
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def early_logs(self) -> Path:
        """Where processes write what they print before the run folder is there: beside it."""
        return self.path.parent / f".{self.path.name}-logs"

    def take_early_logs(self) -> None:
        """Moves them into the folder, beside those of earlier starts; processes go on writing into the same files."""
        if not self.early_logs.is_dir():
            return
        logs = self.path / "logs"
        logs.mkdir(exist_ok=True)
        for file in sorted(self.early_logs.glob("*.log")):
            number = len(list(logs.glob(f"{file.stem}*.log")))
            file.rename(logs / (f"{file.stem}.{number}.log" if number else file.name))
        self.early_logs.rmdir()

    def write_config(self, text: str) -> None:
        """Stores the resolved config, which makes the folder one of a run."""
        write_whole(self.config, text)

    def write_evaluation(self, step: int, label: str, values: Mapping[str, Any]) -> None:
        """Stores one evaluation beside the earlier ones; the same step and label are replaced.

        What it says of each prompt is kept of the first policy and of the newest one, which are compared.
        """
        results = self.read_evaluations()
        for name in results.keys() - {"0", str(step)}:
            for stored in results[name].values():
                stored.pop(PER_PROMPT, None)
        results.setdefault(str(step), {})[label] = dict(values)
        write_whole(self.evaluations, json.dumps(results, indent=1))

    def cut_evaluations_after(self, step: int) -> None:
        """Removes the evaluations after `step`: a resumed run makes them anew."""
        results = self.read_evaluations()
        kept = {name: value for name, value in results.items() if int(name) <= step}
        if len(kept) < len(results):
            write_whole(self.evaluations, json.dumps(kept, indent=1))

    def read_evaluations(self) -> dict[str, dict[str, Any]]:
        """All evaluations as {step: {label: values}}."""
        if not self.evaluations.exists():
            return {}
        results: dict[str, dict[str, Any]] = json.loads(self.evaluations.read_text(encoding="utf-8"))
        return results


def check_run_folder(path: Path, *, resume: bool, overwrite: bool) -> RunFolder:
    """Returns the folder that a run may write into, nothing of it touched yet; never mixes two runs.

    Its path is absolute: a reward function that changes the working folder does not move it.

    Raises ConfigError where a run is there already and neither `resume` nor `overwrite` was asked for, and
    where `resume` finds no run.
    """
    folder = RunFolder(path.absolute())
    exists = folder.config.exists()
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other", "Give one of them.")
    if resume and not exists:
        raise ConfigError(f"there must be a run in {path} to resume, got none", "Leave --resume out to start it.")
    if exists and not (resume or overwrite):
        raise ConfigError(
            f"the folder {path} already holds a run",
            "Go on with it by --resume, choose another run.name, or replace it by --overwrite.",
        )
    if not exists and path.exists() and not (path.is_dir() and all(map(_is_leftover, path.iterdir()))):
        found = "other files" if path.is_dir() else "a file"
        raise ConfigError(f"{path} must be empty or a run folder, got {found}", "Choose another run.name.")
    nearest = next(parent for parent in path.absolute().parents if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise ConfigError(
            f"the run folder {path} must be in a folder that can be written to, got {nearest}", "Set run.output_dir."
        )
    return folder


def write_whole(path: Path, text: str) -> None:
    """Writes a text file that a kill leaves whole: the old one or the new one, never half of it."""
    temporary = path.with_name(f"{_WRITING}{path.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _is_leftover(path: Path) -> bool:
    """Whether a kill during `write_whole` left this."""
    return path.name.startswith(_WRITING)


def _remove(path: Path) -> None:
    """Removes a run folder; a kill on the way leaves a folder that is still known as a run, or none."""
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
    shutil.rmtree(path)
