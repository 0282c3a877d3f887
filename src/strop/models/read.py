"""Reads everything of a local model folder but its weights."""

from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase

from strop.config.model import ModelConfig
from strop.errors import ModelError
from strop.models.kinds import check_kind
from strop.models.stops import chat_turn_end


def read_config(folder: Path, section: ModelConfig) -> PreTrainedConfig:
    """Reads config.json of a local folder; refuses kinds of model that cannot be trained."""
    check_kind(folder, section)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=section.trust_remote_code)
    except (ValueError, KeyError, TypeError, OSError, ImportError) as error:
        raise ModelError(f"the config of {section.path} cannot be read: {error}") from error
    return config


def read_generation_config(folder: Path, config: PreTrainedConfig) -> GenerationConfig:
    """Reads generation_config.json of a local folder; where there is none, the config says what stops."""
    if not (folder / "generation_config.json").is_file():
        return GenerationConfig.from_model_config(config)
    try:
        return GenerationConfig.from_pretrained(folder)
    except (ValueError, TypeError, OSError) as error:
        raise ModelError(f"the generation config of {folder} cannot be read: {error}") from error


def read_tokenizer(folder: Path, section: ModelConfig) -> PreTrainedTokenizerBase:
    """Reads the tokenizer of a local folder, with the chat template of `model.chat_template` where given."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=section.trust_remote_code
        )
    except (ValueError, KeyError, TypeError, OSError, ImportError, AttributeError) as error:
        raise ModelError(
            f"the tokenizer of {section.path} cannot be read: {error}",
            f"Check that {folder} has a whole tokenizer.json.",
        ) from error
    if section.chat_template is not None:
        tokenizer.chat_template = _read_text(section.chat_template)
        chat_turn_end(tokenizer)
    return tokenizer


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise ModelError(f"model.chat_template must be an existing Jinja file, got {path}")
    return path.read_text(encoding="utf-8")
