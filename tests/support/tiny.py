"""Tiny random models of each family, a tiny real tokenizer, model folders, and groups of random rows.

Everything is a pure function of its arguments: the same seed gives the same weights, ids and rewards.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    BambaConfig,
    FalconH1Config,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    Mamba2Config,
    MambaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
)

from strop.records import FinishState, Group, Prompt, Row, Sample
from support.tokenizer import BOS_ID, EOS_ID, PAD_ID, VOCAB_SIZE, tiny_tokenizer

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3", "qwen3_moe")
"""Plain softmax attention in every layer: prefixes can be shared."""
HYBRID_FAMILIES = ("qwen3_next", "mamba", "mamba2", "falcon_h1", "bamba")
"""With linear-attention or state-space layers: prefixes cannot be shared."""

WIDE_FAMILIES = ("llama_wide", "qwen3_wide")
"""With heads of 32, the least that vLLM's attention takes on a CPU."""

SLIDING_WINDOW = 8
"""The window of gemma3's sliding layers; its layers 0 and 1 slide, layer 2 is full."""
MAX_LENGTH = 512


_COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": MAX_LENGTH,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
_ATTENTION = {**_HEADS, "head_dim": 8}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
_WIDE = {"intermediate_size": 64}


def tiny_config(family: str) -> PreTrainedConfig:
    """Returns the config of a tiny model of `family`, with grouped-query attention where there is attention."""
    if family in HYBRID_FAMILIES:
        return _hybrid_config(family)
    if family in WIDE_FAMILIES:
        config = tiny_config(family.removesuffix("_wide"))
        config.head_dim = 32
        return config
    match family:
        case "llama":
            return LlamaConfig(**_COMMON, **_ATTENTION, **_WIDE, tie_word_embeddings=True)
        case "qwen2":
            return Qwen2Config(**_COMMON, **_HEADS, **_WIDE, tie_word_embeddings=False)
        case "qwen3":
            return Qwen3Config(**_COMMON, **_ATTENTION, **_WIDE, tie_word_embeddings=False)
        case "gemma3":
            return Gemma3TextConfig(
                **{**_COMMON, "num_hidden_layers": 3},
                **_ATTENTION,
                **_WIDE,
                query_pre_attn_scalar=8,
                sliding_window=SLIDING_WINDOW,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                final_logit_softcapping=30.0,
            )
        case "qwen3_moe":
            return Qwen3MoeConfig(**_COMMON, **_ATTENTION, **_WIDE, **_MOE)
        case _:
            raise ValueError(f"family must be one of {FAMILIES + HYBRID_FAMILIES}, got {family!r}")


def _hybrid_config(family: str) -> PreTrainedConfig:
    state_space = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 16}
    match family:
        case "qwen3_next":
            return Qwen3NextConfig(
                **_COMMON,
                **_ATTENTION,
                **_WIDE,
                **_MOE,
                shared_expert_intermediate_size=16,
                linear_num_key_heads=2,
                linear_num_value_heads=4,
                linear_key_head_dim=8,
                linear_value_head_dim=8,
                layer_types=["linear_attention", "full_attention"],
            )
        case "mamba":
            return MambaConfig(**_COMMON, state_size=8, time_step_rank=4)
        case "mamba2":
            return Mamba2Config(**_COMMON, num_heads=4, head_dim=16, state_size=8, n_groups=1, chunk_size=16)
        case "falcon_h1":
            return FalconH1Config(**_COMMON, **_ATTENTION, **_WIDE, **state_space, mamba_d_ssm=64)
        case "bamba":
            return BambaConfig(**_COMMON, **_HEADS, **_WIDE, **state_space, attn_layer_indices=[1])
    raise ValueError(f"family must be one of {HYBRID_FAMILIES}, got {family!r}")


def tiny_model(family: str, seed: int = 0, dtype: torch.dtype = torch.float32, attn: str = "strop") -> PreTrainedModel:
    """Returns a tiny random model in evaluation mode; `attn` is its attention implementation.

    The weights of a seed are the same in every dtype (rounded) and under every attention implementation.
    """
    if attn == "strop":
        from strop.models.attention.registry import register_attention

        register_attention()
    options = {} if family == "mamba" else {"attn_implementation": attn}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(tiny_config(family), dtype=torch.float32, **options)
    _randomise(model, seed)
    model.generation_config = GenerationConfig(bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=PAD_ID)
    return model.to(dtype).eval()


@torch.no_grad()
def _randomise(model: PreTrainedModel, seed: int) -> None:
    """Gives every weight a value that matters: biases and norms too, logits with a spread of about one."""
    generator = torch.Generator().manual_seed(seed)
    for _, weight in sorted(model.named_parameters()):
        noise = torch.randn(weight.shape, generator=generator)
        if weight.ndim == 1:
            weight.add_(0.1 * noise)
        else:
            weight.copy_(noise * weight.shape[-1] ** -0.5)


def tiny_folder(tmp_path: Path, family: str = "llama", seed: int = 0) -> Path:
    """Saves a tiny model with its tokenizer as a normal Hugging Face folder and returns the folder."""
    folder = tmp_path / f"{family}-{seed}"
    model = tiny_model(family, seed, attn="eager")
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def tiny_row(rng: np.random.Generator, num_prompt: int, num_sampled: int, prompt_ids: np.ndarray | None = None) -> Row:
    """Returns a row of random ids (no special ones): a prompt without loss, then sampled tokens."""
    prompt = random_ids(rng, num_prompt) if prompt_ids is None else prompt_ids
    token_ids = np.concatenate([prompt, random_ids(rng, num_sampled)])
    loss_mask = np.arange(len(token_ids)) >= len(prompt)
    logprobs = np.where(loss_mask, -rng.exponential(2.0, len(token_ids)), 0.0).astype(np.float32)
    return Row(token_ids, loss_mask, logprobs, np.where(loss_mask, 0, -1).astype(np.int64))


def random_ids(rng: np.random.Generator, count: int) -> np.ndarray:
    """Returns `count` ordinary token ids, [count] int64."""
    return rng.integers(8, VOCAB_SIZE, count, dtype=np.int64)


def tiny_groups(
    num_groups: int = 2,
    group_size: int = 3,
    seed: int = 0,
    prompt_tokens: tuple[int, int] = (3, 9),
    sampled_tokens: tuple[int, int] = (1, 8),
) -> list[Group]:
    """Returns groups of single-turn samples with rewards 0 or 1 and random advantages.

    Lengths are uniform between the two bounds, both included.
    """
    rng = np.random.default_rng(seed)
    return [_tiny_group(rng, index, group_size, prompt_tokens, sampled_tokens) for index in range(num_groups)]


def _tiny_group(
    rng: np.random.Generator,
    index: int,
    group_size: int,
    prompt_tokens: tuple[int, int],
    sampled_tokens: tuple[int, int],
) -> Group:
    prompt_ids = random_ids(rng, int(rng.integers(prompt_tokens[0], prompt_tokens[1] + 1)))
    messages = ({"role": "user", "content": f"question {index}"},)
    prompt = Prompt(f"tiny-{index}", 0, prompt_ids, messages, task="tiny", columns={"answer": str(index)})
    samples = []
    for place in range(group_size):
        count = int(rng.integers(sampled_tokens[0], sampled_tokens[1] + 1))
        row = tiny_row(rng, len(prompt_ids), count, prompt_ids)
        sample = Sample(place, (row,), FinishState.STOPPED, reward=float(rng.integers(0, 2)))
        samples.append(sample.with_token_advantage(float(rng.normal())))
    return Group(prompt, tuple(samples))
