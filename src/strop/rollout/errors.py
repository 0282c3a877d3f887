"""Errors of rollout engines."""

from strop.errors import StropError


class RequestRefusedError(StropError):
    """A request can never be served by this engine: too long for the model or the cache, or not made of its tokens."""


class ReplicaLostError(StropError):
    """An engine is gone: its process ended or cannot be reached. What it was asked can be asked of another one."""

    exit_code = 3
