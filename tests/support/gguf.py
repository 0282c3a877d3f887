"""A tiny real GGUF file: the tiny llama and its tokenizer in the layout that llama.cpp writes."""

from pathlib import Path

import gguf
import torch
from transformers import PreTrainedModel

from support.tiny import tiny_model
from support.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, tiny_tokenizer

_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tiny_gguf(folder: Path, seed: int = 0, pre_tokenizer: str = "smollm") -> Path:
    """Writes `tiny.gguf` with the float32 weights of `tiny_model("llama", seed)` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    model = tiny_model("llama", seed, attn="eager")
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama")
    _write_config(writer, model)
    _write_tokenizer(writer, pre_tokenizer)
    for name, weight in model.named_parameters():
        writer.add_tensor(_gguf_name(name), _gguf_layout(name, weight.detach(), model).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "tiny.gguf"


def _write_config(writer: gguf.GGUFWriter, model: PreTrainedModel) -> None:
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: gguf.GGUFWriter, pre_tokenizer: str) -> None:
    tokenizer = tiny_tokenizer()
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL_TOKENS else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in _merges(tokenizer)])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_pad_token_id(PAD_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)


def _merges(tokenizer: object) -> list[list[str]]:
    import json

    return json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]


def _gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_NAMES[rest.removesuffix('.weight')]}.weight"


def _gguf_layout(name: str, weight: torch.Tensor, model: PreTrainedModel) -> torch.Tensor:
    """llama.cpp rotates neighbouring pairs of a head, transformers its two halves: rows are interleaved."""
    heads = {"q_proj": model.config.num_attention_heads, "k_proj": model.config.num_key_value_heads}
    for part, num_heads in heads.items():
        if f".{part}." in name:
            halves = weight.view(num_heads, 2, -1, weight.shape[1])
            return halves.transpose(1, 2).reshape(weight.shape).contiguous()
    return weight.contiguous()
