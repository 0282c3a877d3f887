"""Where a run's parts live."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section


class ClusterConfig(Section):
    """One process, or several on Ray: trainer ranks and samplers, each a process of its own."""

    type: Literal["local", "ray"] = "local"
    """local: everything in this process. ray: trainer ranks and samplers are Ray actors."""
    address: str | None = None
    """A Ray cluster that is there already, as `host:6379` or `auto`; None starts one on this machine."""
    trainers: int = Field(default=1, ge=1)
    """Trainer ranks that share the policy."""
    placement: Literal["shared", "split"] = "shared"
    """shared: trainers and samplers use the same cores and devices, one after the other. split: each has its own."""
    trainer_cores: int | None = Field(default=None, ge=1)
    """Cores of one trainer rank; None divides those that there are."""
    sampler_cores: int | None = Field(default=None, ge=1)
    """Cores of one sampler; None divides those that there are."""
    environment: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Environment variables by role, `trainer` or `sampler`."""
    start_timeout_seconds: float = Field(default=120.0, gt=0)
    """How long Ray and the processes of all roles may take to start, without loading models."""
