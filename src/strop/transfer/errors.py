"""What can go wrong on the way of weights."""

from collections.abc import Mapping

from strop.errors import SyncError


class DeliveryError(SyncError):
    """Some receivers did not get their weights; keeps what befell each, by name."""

    def __init__(self, failures: Mapping[str, BaseException]) -> None:
        told = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failures.items())
        super().__init__(f"weights did not arrive at {told}")
        self.failures = dict(failures)


class TransferBrokenError(SyncError):
    """The other side of a transfer went away, or let the time limit pass: the fault is not on this side."""
