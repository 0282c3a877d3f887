"""The task of `learning.py`, what it asks of a side, and the model and tokenizer that both start from.

The user names a number; the assistant must say it `WANTED` times and stop. So lengths vary, and the end of a
completion has to be learnt like every other token.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WANTED = 4
PROMPTS_PER_STEP, GROUP_SIZE, NEW_TOKENS = 8, 8, 12
MARKS = ["<eos>", "user:", "assistant:"]
"""Only the end is a special token: what decoding leaves out could be said without a cost."""
NUMBERS = "one two three four five".split()
VERBS = "say write give show print".split()
SYLLABLES = [consonant + vowel for consonant in "bkm" for vowel in "aeiou"]
WORDS = MARKS + NUMBERS + VERBS + SYLLABLES
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }} "
    "{% if message['role'] == 'assistant' %}<eos> {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@dataclass
class Work:
    """What `learning.py` asks of a side."""

    mode: str
    model: str
    algorithm: str
    seed: int
    steps: int
    learning_rate: float
    out: str = ""
    """Folder for the gradient and the weights of TRL, in mode `replay`."""
    reward_weight: float = 1.0
    samples: list[dict[str, list[Any]]] = field(default_factory=list)
    """What TRL drew in each step: asked of strop, in mode `replay`."""
    overrides: list[str] = field(default_factory=list)
    """Keys of strop's run file."""


def grade(completion: str, number: str) -> float:
    """The share of right words times shortness: 1 for the number `WANTED` times and nothing else."""
    words = completion.split()
    length = max(len(words), WANTED)
    return min(words.count(number), WANTED) / length * WANTED / length


def rows(count: int) -> list[dict[str, str]]:
    """The same questions in the same order on both sides."""
    rng = random.Random(0)
    numbers = [rng.choice(NUMBERS) for _ in range(count)]
    return [{"question": f"{rng.choice(VERBS)} {number}", "number": number} for number in numbers]


def make_model(folder: Path) -> None:
    """Saves a random Llama of 78 thousand weights and a word-level tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<eos>",
        eos_token="<eos>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=WORDS.index("<eos>"),
        bos_token_id=None,
        eos_token_id=WORDS.index("<eos>"),
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
