"""How published weights are proven."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section


class WeightSyncConfig(Section):
    """The proof that the sampler holds the weights that were published."""

    probe_tokens: int = Field(default=32, ge=2)
    """Length of the probe that trainer and sampler both score."""
    max_logprob_difference: float | None = Field(default=None, gt=0)
    """Largest allowed difference of a probe log-prob; None takes 1e-4 in float32 and 0.05 in bfloat16."""
    canary: bool = True
    """Publishes one visible perturbation at the start, and takes it back: every sampler must follow."""
    transfer: Literal["shared_memory", "broadcast", "disk"] = "shared_memory"
    """How weights reach samplers in other processes: memory of one machine, collectives over the network, or files."""
    bucket_mib: int = Field(default=8, ge=1)
    """Weights travel in buckets of this size; beyond the weights, each side holds two and the largest tensor."""
    folder: str | None = None
    """Where the files lie with transfer disk: a folder for this run alone, which trainer and samplers reach."""
