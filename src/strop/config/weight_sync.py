"""How published weights are proven."""

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
