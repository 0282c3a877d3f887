"""The small parts of a checkpoint: each is one JSON state.

A step folder of a run holds these parts, each a folder: `engine` (the training engine's own files), `prompts`
(the prompt stream), `trainer` (counters), `proof` (the probe and what was proven), `drift` (samples of the first
policy), `groups` (collected but untrained groups).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import CheckpointError

_STATE_NAME = "state.json"


@dataclass(frozen=True, slots=True)
class StatePart:
    """A part that is one JSON-able state, read from and given back to its owner.

    `StatePart(source.state, source.restore)` keeps a prompt source. An owner refuses a state by ValueError.
    """

    state: Callable[[], Mapping[str, Any]]
    restore: Callable[[Mapping[str, Any]], None]

    def save(self, folder: Path) -> None:
        """Writes the state; numbers come back exactly."""
        (folder / _STATE_NAME).write_text(json.dumps(self.state(), indent=1), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Gives the state back to its owner; raises CheckpointError with the owner's reason to refuse it."""
        try:
            self.restore(read_state(folder))
        except ValueError as error:
            raise CheckpointError(f"{folder} cannot be resumed: {error}") from error


def read_state(folder: Path) -> dict[str, Any]:
    """Returns what a `StatePart` wrote into a part's folder."""
    state: dict[str, Any] = json.loads((folder / _STATE_NAME).read_text(encoding="utf-8"))
    return state
