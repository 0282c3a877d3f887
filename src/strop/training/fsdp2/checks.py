"""What a model must be before it is trained: without any randomness of its own."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from strop.errors import ModelError

_RANDOM_KEYS = ("dropout", "pdrop", "dropout_rate", "drop_path_rate", "layerdrop", "jitter_noise")
"""Ends of config keys whose value makes a forward pass random in training mode."""


def require_deterministic(causal_lm: PreTrainedModel) -> None:
    """Raises ModelError naming every dropout that is not 0: the update must depend on the batch only."""
    found = _random_settings(causal_lm.config.to_dict())
    found.update(
        {name: module.p for name, module in causal_lm.named_modules() if isinstance(module, nn.Dropout) and module.p}
    )
    if found:
        names = ", ".join(f"{name}={value}" for name, value in sorted(found.items()))
        raise ModelError(
            f"dropout must be 0 in a policy, or its ratio to the sampler is random; got {names}",
            "set these keys to 0 in the model's config.json",
        )


def _random_settings(config: Mapping[Any, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found.update(_random_settings(value, f"{prefix}{key}."))
        elif str(key).endswith(_RANDOM_KEYS) and isinstance(value, int | float) and value > 0:
            found[f"{prefix}{key}"] = float(value)
    return found
