"""Which kinds of model can be trained at all, decided from config.json before anything else is read."""

import json
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, __version__
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from strop.config.model import ModelConfig
from strop.errors import ModelError


def check_kind(folder: Path, section: ModelConfig) -> None:
    """Raises ModelError for code that was not asked for, unknown types, quantised weights and encoder-decoders."""
    config = _read_config(folder)
    model_type = config.get("model_type")
    brings_code = "AutoConfig" in config.get("auto_map", {}) or "AutoModelForCausalLM" in config.get("auto_map", {})
    if model_type not in CONFIG_MAPPING and not section.trust_remote_code:
        raise _unknown_type(section, model_type, brings_code)
    if config.get("is_encoder_decoder"):
        raise ModelError(
            f"{section.path} must be a decoder-only language model, got the encoder-decoder {model_type!r}"
        )
    if model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not section.trust_remote_code:
        raise ModelError(f"{section.path} must be a causal language model, got the model type {model_type!r}")
    if "quantization_config" in config:
        method = config["quantization_config"].get("quant_method", "unknown")
        raise ModelError(
            f"{section.path} must hold plain weights to be trained, got weights quantised by {method!r}",
            "Take the unquantised model.",
        )


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} must be JSON, got {error}", "Fetch the file anew.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} must hold a JSON object, got {type(config).__name__}", "Fetch the file anew.")
    return config


def _unknown_type(section: ModelConfig, model_type: str | None, brings_code: bool) -> ModelError:
    if brings_code:
        return ModelError(
            f"{section.path} is of type {model_type!r}, which needs Python code that the model folder brings along",
            "Read that code; if you trust it, set model.trust_remote_code = true.",
        )
    return ModelError(
        f"{section.path} is of type {model_type!r}, which transformers {__version__} does not know",
        "Check model_type in config.json, or take a version of transformers that knows it.",
    )
