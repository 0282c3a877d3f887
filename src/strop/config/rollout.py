"""How completions are sampled."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section
from strop.config.rollout_vllm import VllmConfig


class RolloutConfig(Section):
    """Sampling for training, and the engine that does it."""

    type: Literal["native", "vllm"] = "native"
    """native: the continuous-batching engine that strop brings. vllm: vLLM, which is installed apart."""
    vllm: VllmConfig = Field(default_factory=VllmConfig)
    """What only vLLM takes."""
    replicas: int = Field(default=1, ge=1)
    """Engines that share the requests, each with a full copy of the policy."""
    prompts_per_step: int = Field(default=8, ge=1)
    """Prompts in the batch of one step."""
    group_size: int = Field(default=8, ge=1)
    """Samples for each prompt."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Budget of a sample."""
    temperature: float = Field(default=1.0, gt=0)
    """Divides the logits before sampling; the trainer scores at the same temperature."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 is off. Below 1 the update is off-policy without correction, so training refuses it."""
    top_k: int = Field(default=0, ge=0)
    """Samples only among the k likeliest tokens; 0 is off. Training refuses it for the same reason."""
    stop_strings: list[str] = Field(default_factory=list)
    """Texts that end a sample."""
    stop_token_ids: list[int] = Field(default_factory=list)
    """Token ids that end a sample, beside the model's own."""
    max_running: int = Field(default=64, ge=1)
    """Samples that run at the same time; others wait."""
    max_cache_tokens: int = Field(default=262144, ge=1)
    """Bound on the tokens in the KV cache."""
    sleep_during_update: bool = True
    """Gives the sampler's cache and packed weights back while the policy is updated; they come with the publication."""
    packed_linears: bool = True
    """On a CPU, holds linear weights in oneDNN's packed layout, which decodes faster; not in recurrent models."""
