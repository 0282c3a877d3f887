"""What ends training: errors that a person can put right."""

from collections.abc import Sequence

from strop.errors import StropError
from strop.records.packing import SampleKey


class TooManySkippedUpdates(StropError):  # noqa: N818 - reads as what happened
    """Several updates in a row had a gradient that was not finite."""

    def __init__(self, num_skipped: int, suspects: Sequence[SampleKey], section: str = "training") -> None:
        names = ", ".join(f"group {group} sample {sample}" for group, sample in suspects)
        super().__init__(
            f"the gradient must be finite, got {num_skipped} updates in a row that were not; "
            f"samples of the last one that are suspect: {names or 'none'}",
            f"look at these samples, and lower {section}.learning_rate; weights are those of the last finite update",
        )
        self.num_skipped = num_skipped
        self.suspects = tuple(suspects)
