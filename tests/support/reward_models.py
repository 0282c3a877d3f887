"""Tiny sequence classification models with a tokenizer, as folders: what a reward model on disk looks like."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    RobertaConfig,
)

from support.tiny import MAX_LENGTH
from support.tokenizer import EOS_ID, PAD_ID, VOCAB_SIZE, tiny_tokenizer

REWARD_FAMILIES = ("llama", "qwen2", "gpt2", "bert", "roberta")
"""Decoders, which are read at the last token, and encoders, which are read at the first."""

_SIZES = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_WIDE = {**_SIZES, "intermediate_size": 64, "max_position_embeddings": MAX_LENGTH}


def reward_config(family: str, **changes: Any) -> Any:
    """The config of a tiny classifier of one label; `changes` are laid over it."""
    settings = {"num_labels": 1, "pad_token_id": EOS_ID, "eos_token_id": EOS_ID, **changes}
    match family:
        case "llama":
            return LlamaConfig(**{**_WIDE, **settings})
        case "qwen2":
            return Qwen2Config(**_WIDE, num_key_value_heads=2, **settings)
        case "gpt2":
            return GPT2Config(vocab_size=VOCAB_SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=MAX_LENGTH, **settings)
        case "bert":
            return BertConfig(**_WIDE, **{**settings, "pad_token_id": PAD_ID})
        case "roberta":
            wide = {**_WIDE, "max_position_embeddings": MAX_LENGTH + PAD_ID + 1, "type_vocab_size": 1}
            return RobertaConfig(**wide, **{**settings, "pad_token_id": PAD_ID})
    raise ValueError(f"family must be one of {REWARD_FAMILIES}, got {family!r}")


def reward_tokenizer() -> PreTrainedTokenizerBase:
    """The tiny tokenizer as many reward models have it: the end of sequence is the padding too, and ends each chat."""
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    assert isinstance(tokenizer.chat_template, str)
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
        "<|im_end|>\n{% endfor %}<|endoftext|>"
    )
    tokenizer.model_max_length = MAX_LENGTH
    return tokenizer


def reward_folder(
    tmp_path: Path, family: str = "llama", tokenizer: PreTrainedTokenizerBase | None = None, **changes: Any
) -> Path:
    """Saves a tiny random reward model whose scores spread, and returns its folder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForSequenceClassification.from_config(reward_config(family, **changes))
        for name, weight in sorted(model.named_parameters()):
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
            elif "bias" in name:
                torch.nn.init.normal_(weight, std=0.1)
    folder = tmp_path / f"reward-{family}"
    model.save_pretrained(folder)
    (tokenizer or reward_tokenizer()).save_pretrained(folder)
    return folder
