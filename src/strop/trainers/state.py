"""What the trainer itself must remember between two steps; everything else is remembered by its owner."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from strop.errors import CheckpointError
from strop.protocols import PromptSource

_FILE = "state.json"


@dataclass
class TrainerState:
    """Counters of a run; a `protocols.CheckpointPart`."""

    step: int = 0
    """Steps that are complete."""
    version: int = 0
    """Version of the weights that were published last."""
    tokens_sampled: int = 0
    """Tokens sampled for training since the run began."""
    samples_rewarded: int = 0
    """Samples rewarded since the run began."""

    def save(self, folder: Path) -> None:
        """Writes the counters as JSON."""
        (folder / _FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Takes the counters from a folder that `save` wrote."""
        stored = read_json(folder / _FILE)
        names = {field.name for field in fields(self)}
        if set(stored) != names:
            raise CheckpointError(f"{folder / _FILE} must hold {sorted(names)}, got {sorted(stored)}")
        for name, value in stored.items():
            setattr(self, name, value)


@dataclass(frozen=True)
class PromptStreamPart:
    """The prompt stream as a `protocols.CheckpointPart`."""

    source: PromptSource

    def save(self, folder: Path) -> None:
        """Writes where the stream stands."""
        (folder / _FILE).write_text(json.dumps(self.source.state()), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Puts the stream where it stood; refuses the state of another data set."""
        try:
            self.source.restore(read_json(folder / _FILE))
        except ValueError as error:
            raise CheckpointError(f"the prompts of {folder} cannot be resumed: {error}") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """Reads a JSON object that a checkpoint must hold."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path} must hold a JSON object, got {type(stored).__name__}")
    return stored
