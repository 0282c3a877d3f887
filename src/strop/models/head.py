"""The language-model head as data: what turns hidden states into logits, without the model around it.

Log-probs of N predictions need only N rows of hidden states; with the head in hand they are computed in
chunks and a full [T, V] buffer never exists.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel

from strop.errors import ModelError

_MULTIPLIERS = {
    "cohere": "logit_scale",
    "cohere2": "logit_scale",
    "cohere2_moe": "logit_scale",
    "cohere_compass": "logit_scale",
    "falcon_h1": "lm_head_multiplier",
    "hyperclovax": "logits_scaling",
}
"""Model types whose logits are multiplied by a config value, and its key."""
_DIVISORS = {
    "granite": "logits_scaling",
    "granite_swa": "logits_scaling",
    "granitemoe": "logits_scaling",
    "granitemoe_swa": "logits_scaling",
    "granitemoehybrid": "logits_scaling",
    "granitemoeshared": "logits_scaling",
    "minicpm3": "logits_scaling",
}
"""Model types whose logits are divided by a config value, and its key."""
_SOFTCAP_KEY = "final_logit_softcapping"
_SCALE_KEYS = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier", "logits_multiplier")
"""Config keys that change logits somewhere; with a model type that is in no table they are refused."""


@dataclass(frozen=True)
class LogitsHead:
    """logits = cap(scale * (hidden @ weight.T + bias)), where cap(x) = softcap * tanh(x / softcap).

    `weight` is the model's own parameter (tied or not), not a copy: gradients reach it and updates show.
    """

    weight: torch.Tensor
    """[V, H]"""
    bias: torch.Tensor | None = None
    """[V]"""
    softcap: float | None = None
    scale: float = 1.0

    @classmethod
    def from_model(cls, hf_model: PreTrainedModel) -> "LogitsHead":
        """Reads the head of a causal language model. Raises ModelError where it is of an unknown kind."""
        linear = hf_model.get_output_embeddings()  # type: ignore[no-untyped-call]
        config = hf_model.config.get_text_config()
        if not isinstance(linear, nn.Linear):
            raise ModelError(
                f"the head of {config.model_type!r} must be one linear layer, got {type(linear).__name__}",
                "Load a causal language model: its config.architectures ends with ForCausalLM.",
            )
        return cls(linear.weight, linear.bias, _config_softcap(config), _config_scale(config))

    def logits(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Returns [N, V] logits of [N, H] hidden states, at temperature 1, in the dtype of the model."""
        # Mamba's residual stream, and with it what its decoder returns, is float32 whatever the weights are.
        logits_NV = functional.linear(hidden_NH.to(self.weight.dtype), self.weight, self.bias)
        if self.scale != 1.0:
            logits_NV = logits_NV * self.scale
        if self.softcap is not None:
            logits_NV = torch.tanh(logits_NV / self.softcap) * self.softcap
        return logits_NV


def _config_softcap(config: PreTrainedConfig) -> float | None:
    value = config.to_dict().get(_SOFTCAP_KEY)
    return float(value) if value else None


def _config_scale(config: PreTrainedConfig) -> float:
    values, model_type = config.to_dict(), config.model_type
    if model_type in _MULTIPLIERS:
        return float(values[_MULTIPLIERS[model_type]])
    if model_type in _DIVISORS:
        return 1.0 / float(values[_DIVISORS[model_type]])
    unknown = [key for key in _SCALE_KEYS if values.get(key) not in (None, 1, 1.0)]
    if unknown:
        raise ModelError(
            f"the head of {model_type!r} must be one that strop knows, "
            f"got a config with {unknown[0]} = {values[unknown[0]]}",
            "Add the model type to the tables in strop/models/head.py, saying whether it multiplies or divides.",
        )
    return 1.0
