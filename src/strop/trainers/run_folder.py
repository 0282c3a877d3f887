"""The folder of one run, and who may write into it.

config.toml        the resolved config        environment.json   versions, machine, command
metrics.jsonl      one line a step            samples/           every sample of every step
checkpoints/       whole steps                evaluations.json   results before, during, after
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import ConfigError


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

    def write_evaluation(self, step: int, label: str, values: Mapping[str, Any]) -> None:
        """Stores one evaluation beside the earlier ones; the same step and label are replaced."""
        results = self.read_evaluations()
        results.setdefault(str(step), {})[label] = dict(values)
        temporary = self.evaluations.with_suffix(".writing")
        temporary.write_text(json.dumps(results, indent=1), encoding="utf-8")
        temporary.replace(self.evaluations)

    def read_evaluations(self) -> dict[str, dict[str, Any]]:
        """All evaluations as {step: {label: values}}."""
        if not self.evaluations.exists():
            return {}
        results: dict[str, dict[str, Any]] = json.loads(self.evaluations.read_text(encoding="utf-8"))
        return results


def open_run_folder(path: Path, *, resume: bool, overwrite: bool) -> RunFolder:
    """Makes the folder of a new run, or opens the one to resume; never mixes two runs.

    Raises ConfigError where a run is there already and neither `resume` nor `overwrite` was asked for, and
    where `resume` finds no run.
    """
    folder = RunFolder(path)
    exists = folder.config.exists()
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other", "Give one of them.")
    if resume and not exists:
        raise ConfigError(f"there must be a run in {path} to resume, got none", "Leave --resume out to start it.")
    if exists and overwrite:
        shutil.rmtree(path)
    elif exists and not resume:
        raise ConfigError(
            f"the folder {path} already holds a run",
            "Go on with it by --resume, choose another run.name, or replace it by --overwrite.",
        )
    elif not exists and path.exists() and any(path.iterdir()):
        raise ConfigError(f"{path} must be empty or a run folder, got other files", "Choose another run.name.")
    path.mkdir(parents=True, exist_ok=True)
    return folder
