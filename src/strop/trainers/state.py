"""What the trainer itself must remember between two steps; everything else is remembered by its owner."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from strop.records import Group


@dataclass
class TrainerState:
    """Counters of a run, kept in its checkpoints."""

    step: int = 0
    """Steps that are complete."""
    version: int = 0
    """Version of the weights that were published last."""
    tokens_sampled: int = 0
    """Tokens sampled for training since the run began."""
    samples_rewarded: int = 0
    """Samples rewarded since the run began."""

    def count(self, groups: Sequence[Group]) -> None:
        """Adds what a step sampled and rewarded."""
        samples = [sample for group in groups for sample in group.samples]
        self.tokens_sampled += sum(sample.num_sampled_tokens for sample in samples)
        self.samples_rewarded += len(samples)

    def as_dict(self) -> dict[str, int]:
        """Returns the counters by name, from which `restore` goes on."""
        return asdict(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the counters over; raises ValueError where they are not exactly these."""
        names = {field.name for field in fields(self)}
        if set(state) != names:
            raise ValueError(f"the counters must be {sorted(names)}, got {sorted(state)}")
        for name, value in state.items():
            setattr(self, name, value)
