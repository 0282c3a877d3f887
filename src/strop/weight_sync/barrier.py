"""A meeting of all ranks that share devices, with a time limit and without standing in the event loop's way."""

import asyncio
from datetime import timedelta

import torch.distributed as dist

from strop.errors import SyncError


class Barrier:
    """Waits for the ranks of a gloo group; alone, or where no ranks are joined, it returns at once."""

    def __init__(self, group: dist.ProcessGroup | None = None, *, timeout_seconds: float = 300.0) -> None:
        """Takes a gloo group, which no collective of another thread may use meanwhile.

        None takes the default group, which must then be one of gloo: a barrier of a device's own backend would queue
        behind the device's work.
        """
        self._group = group
        self._timeout_seconds = timeout_seconds

    @property
    def is_needed(self) -> bool:
        """Whether there is anybody to wait for."""
        return dist.is_available() and dist.is_initialized() and dist.get_world_size(self._group) > 1

    async def wait(self, purpose: str) -> None:
        """Returns when every rank waits here. Raises SyncError, on every rank, saying who did not come."""
        if not self.is_needed:
            return
        await asyncio.get_running_loop().run_in_executor(None, self._wait, purpose)

    def _wait(self, purpose: str) -> None:
        limit = timedelta(seconds=self._timeout_seconds)
        try:
            dist.monitored_barrier(self._group, limit, wait_all_ranks=True)
        except (RuntimeError, ValueError) as error:  # what torch raises for late ranks, and for other backends
            raise SyncError(
                f"all {dist.get_world_size(self._group)} ranks must say within {self._timeout_seconds:g} s that "
                f"{purpose}; rank {dist.get_rank(self._group)} waited in vain: {error}"
            ) from error
