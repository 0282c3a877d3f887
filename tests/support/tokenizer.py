"""A tiny real tokenizer: byte-level BPE with chat markers and a ChatML template."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 320
"""5 special tokens, 256 bytes and the merges learned from `SENTENCES`."""
SPECIAL_TOKENS = ("<|pad|>", "<|bos|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")
PAD_ID, BOS_ID, EOS_ID, IM_START_ID, IM_END_ID = range(5)

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SENTENCES = (
    "What is two plus two? The answer is four.",
    "A strop gives a finished blade its edge, and the blade keeps the edge for the whole day.",
    "The user asks a question and the assistant answers the question of the user.",
    "Sum the numbers 12 and 30: the result is 42, and 7 more is 49.",
    "There is no answer other than the one that is there.",
    "\n\n1. one\n\n2. two\n\n3. three\n\n4. four\n\n5. five  6  7  8  9  10  11  12",
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Trains the tokenizer anew (some milliseconds); the result is always the same."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        bos_token="<|bos|>",
        eos_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
