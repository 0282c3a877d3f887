"""What the offline loop itself must remember between two steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class OfflineState:
    """Counters of a run, kept in its checkpoints."""

    step: int = 0
    """Steps that are complete: updates, skipped ones too."""
    num_examples: int = 0
    """Rows that were trained on."""
    num_tokens: int = 0
    """Tokens that bore loss."""

    def as_dict(self) -> dict[str, int]:
        """Returns the counters by name, from which `restore` goes on."""
        return {"step": self.step, "num_examples": self.num_examples, "num_tokens": self.num_tokens}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the counters over; raises ValueError where they are not exactly these."""
        if set(state) != set(self.as_dict()):
            raise ValueError(f"the counters must be {sorted(self.as_dict())}, got {sorted(state)}")
        self.step, self.num_examples, self.num_tokens = (int(state[name]) for name in self.as_dict())
