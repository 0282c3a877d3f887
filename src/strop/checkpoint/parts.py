"""Small parts of a checkpoint: JSON states, files and groups.

A step folder of a run holds these parts, each a folder: `engine` (the training engine's own files), `prompts`
(the prompt stream), `trainer` (counters), `proof` (the probe and what was proven), `drift` (samples of the first
policy), `groups` (collected but untrained groups).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STATE_NAME = "state.json"


@dataclass(frozen=True, slots=True)
class StatePart:
    """A part that is one JSON-able state, read from and given back to its owner.

    `StatePart(source.state, source.restore)` keeps a prompt source.
    """

    state: Callable[[], Mapping[str, Any]]
    restore: Callable[[Mapping[str, Any]], None]

    def save(self, folder: Path) -> None:
        """Writes the state; numbers come back exactly."""
        (folder / _STATE_NAME).write_text(json.dumps(self.state(), indent=1), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Gives the state back to its owner."""
        self.restore(read_state(folder))


def read_state(folder: Path) -> dict[str, Any]:
    """Returns what a `StatePart` wrote into a part's folder."""
    state: dict[str, Any] = json.loads((folder / _STATE_NAME).read_text(encoding="utf-8"))
    return state


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part that is one text file for people and tools; nothing is restored from it."""

    name: str
    text: str

    def save(self, folder: Path) -> None:
        """Writes the text."""
        (folder / self.name).write_text(self.text, encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Leaves everything as it is: a resumed run has a config of its own."""
