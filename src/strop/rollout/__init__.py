"""Rollout engines: what completes prompts with a copy of the policy."""

from strop.rollout.errors import ReplicaLostError, RequestRefusedError

__all__ = ["ReplicaLostError", "RequestRefusedError"]
