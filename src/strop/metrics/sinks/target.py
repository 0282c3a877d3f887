"""What a sink is told about the run that it writes for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Names the run and says where it goes on.

    A library whose history cannot be cut gets a run of its own for every continuation, in the same group, so
    that no step appears twice in one run.
    """

    run_folder: Path
    """An existing folder; sinks that write files write below it."""
    run_name: str
    project: str
    resume_step: int | None = None
    """The last step that is kept, -1 where not even step 0 is; None for a new run."""

    @property
    def continuation_name(self) -> str:
        """The run's name, with the step it goes on from where it was resumed."""
        return self.run_name if self.resume_step is None else f"{self.run_name}-after-{self.resume_step}"
