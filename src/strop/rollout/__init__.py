"""Rollout engines: what completes prompts with a copy of the policy."""

from strop.rollout.errors import RequestRefusedError

__all__ = ["RequestRefusedError"]
