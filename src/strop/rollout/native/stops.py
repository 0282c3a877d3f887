"""Finds stop strings while a completion grows, decoding only its end."""

from collections.abc import Callable, Sequence
from typing import Final

Decode = Callable[[Sequence[int]], str]
"""Text of token ids, special tokens left out."""

SPARE_TOKENS: Final = 8
"""Tokens decoded in front of the longest possible match, so that the window's broken start lies outside of it."""


def stop_window_tokens(stop_strings: Sequence[str]) -> int:
    """Returns how many last tokens can hold a match: a token that gives text gives at least one byte of it."""
    longest = max((len(text.encode()) for text in stop_strings), default=0)
    return longest + SPARE_TOKENS


def ends_with_stop(token_ids: Sequence[int], stop_strings: Sequence[str], decode: Decode) -> bool:
    """Whether the text of the last tokens contains a stop string; asked after each token, it finds each at once."""
    window = token_ids[-stop_window_tokens(stop_strings) :]
    text = decode(window)
    return any(stop in text for stop in stop_strings)
