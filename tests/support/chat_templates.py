"""Tokenizers that write conversations as families of models do: each with its markers, its end of turn and its habits.

The templates are written anew and keep what matters for several turns: whether the text of a turn is trimmed, what a
turn ends with, whether a system message is put in, and whether earlier thoughts are left out.
"""

from transformers import PreTrainedTokenizerFast

from support.tokenizer import CHAT_TEMPLATE, tiny_tokenizer

QWEN3 = """
{%- set ns = namespace(last_question=0) -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}{%- set ns.last_question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- set text = m.content -%}{%- set thought = '' -%}
{%- if m.role == 'assistant' and '</think>' in text -%}
{%- set thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
{%- set text = text.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{%- if m.role == 'tool' -%}
{{ '<|im_start|>user\\n<tool_response>\\n' + text + '\\n</tool_response><|im_end|>\\n' }}
{%- elif m.role == 'assistant' and loop.index0 > ns.last_question and thought -%}
{{ '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
{{- text.lstrip('\\n') + '<|im_end|>\\n' }}
{%- else -%}
{{ '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking -%}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}
{%- endif -%}
"""
LLAMA3 = """
{{- bos_token -}}
{%- for m in messages -%}
{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}
"""
SMOLLM2 = """
{%- if messages[0].role != 'system' -%}{{ '<|im_start|>system\\nYou are a small model.<|im_end|>\\n' }}{%- endif -%}
{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
GEMMA = """
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('Roles must alternate') }}{%- endif -%}
{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""
TEMPLATES = {"qwen3": QWEN3, "llama3": LLAMA3, "smollm2": SMOLLM2, "gemma": GEMMA, "chatml": CHAT_TEMPLATE}
END_OF_TURN = {
    "qwen3": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "smollm2": "<|im_end|>",
    "gemma": "<end_of_turn>",
    "chatml": "<|im_end|>",
}
"""The token that ends a turn, which the policy samples."""
_MARKERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>")


def chat_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A tiny tokenizer with the markers and the template of a family; thoughts are ordinary tokens."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(list(_MARKERS), special_tokens=True)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=False)
    tokenizer.chat_template = TEMPLATES[family]
    return tokenizer


def end_of_turn(family: str, tokenizer: PreTrainedTokenizerFast) -> int:
    """The id of the token that ends a turn."""
    return int(tokenizer.convert_tokens_to_ids(END_OF_TURN[family]))
