"""A group of processes of its own, beside whatever groups training and engines have."""

import weakref
from datetime import timedelta

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from strop.transfer.errors import TransferBrokenError

__all__ = ["BroadcastGroup", "PrefixStore", "TCPStore", "Travel", "open_store"]


class Travel:
    """A tensor on its way; it is kept until it has arrived."""

    def __init__(self, tensor: torch.Tensor, work: "torch.distributed.Work") -> None:
        self._tensor: torch.Tensor | None = tensor
        self._work: torch.distributed.Work | None = work

    def wait(self) -> None:
        """Waits until it has arrived. Raises TransferBrokenError where somebody went away."""
        if self._work is None:
            raise TransferBrokenError("the group was left while a tensor was on its way")
        try:
            self._work.wait()
        except RuntimeError as error:  # what torch raises for everything in a collective
            raise _broken(error) from error
        finally:
            self.forget()

    def forget(self) -> None:
        """Lets the connections go that the work holds."""
        self._tensor = self._work = None


class BroadcastGroup:
    """Rank 0 sends to all others, over gloo."""

    def __init__(self, store: PrefixStore, rank: int, size: int, timeout_seconds: float) -> None:
        """Meets the others at the store; every wait is bounded by the time limit."""
        self._travels: weakref.WeakSet[Travel] = weakref.WeakSet()
        self._group: ProcessGroupGloo | None = None
        try:
            self._group = ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout_seconds))
        except RuntimeError as error:
            raise _broken(error) from error

    def broadcast(self, tensor: torch.Tensor) -> Travel:
        """Begins to send, on rank 0, or to fill the tensor, which must stay as it is meanwhile."""
        if self._group is None:
            raise TransferBrokenError("the group was left")
        try:
            travel = Travel(tensor, self._group.broadcast(tensor, 0))  # type: ignore[attr-defined]
        except RuntimeError as error:
            raise _broken(error) from error
        self._travels.add(travel)
        return travel

    def leave(self) -> None:
        """Ends all connections once what is on its way has arrived or failed: the others then fail at once.

        `abort` of gloo ends nothing; connections end with the objects that hold them.
        """
        for travel in list(self._travels):
            travel.forget()
        self._group = None


def _broken(error: RuntimeError) -> TransferBrokenError:
    return TransferBrokenError(f"another process went away while weights were broadcast: {error}")


def open_store(host: str, port: int, *, is_owner: bool, timeout_seconds: float) -> TCPStore:
    """Opens the store of a host, or connects to it; port 0 lets the system choose."""
    timeout = timedelta(seconds=timeout_seconds)
    return TCPStore(host, port, is_master=is_owner, wait_for_workers=False, timeout=timeout)
