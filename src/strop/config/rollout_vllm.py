"""What only vLLM takes of the sampling section."""

from typing import Any

from pydantic import Field

from strop.config.base import Section


class VllmConfig(Section):
    """Settings of vLLM, where `rollout.type` is vllm."""

    cache_gib: float | None = Field(default=None, gt=0)
    """KV cache in GiB; None takes 1 on a CPU, elsewhere what `gpu_memory_utilization` leaves."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of the device's memory that vLLM may use; None takes vLLM's own default. On a CPU the cache says it."""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """More arguments of vLLM's engine under their names there; those that strop sets itself are refused."""
