"""Stop strings are found as soon as they are there, and only then."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from strop.rollout.native.stops import ends_with_stop


def decode_bytes(token_ids: Sequence[int]) -> str:
    """One token a byte, as a byte-level tokenizer at its worst."""
    return bytes(token_ids).decode(errors="replace")


@given(
    text=st.text(alphabet="ab\u00e9\u20ac\n", max_size=40),
    stops=st.lists(st.text(alphabet="ab\u00e9\u20ac\n", min_size=1, max_size=6), min_size=1, max_size=3),
)
def test_the_first_stop_is_found_at_the_token_that_completes_it(text: str, stops: list[str]) -> None:
    token_ids = list(text.encode())
    found = [n for n in range(1, len(token_ids) + 1) if ends_with_stop(token_ids[:n], stops, decode_bytes)]
    whole = [n for n in range(1, len(token_ids) + 1) if any(stop in decode_bytes(token_ids[:n]) for stop in stops)]
    assert found[:1] == whole[:1]
