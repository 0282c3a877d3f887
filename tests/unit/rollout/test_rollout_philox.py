"""The random streams: the published test vectors, and that streams and tokens do not meet."""

import numpy as np
import pytest

from strop.records import StreamKey
from strop.rollout.native.philox import philox4x32, stream_words, uniforms

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
PI_KEY = (0xA4093822, 0x299F31D0)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI, PI_KEY, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_gives_the_published_answers(counter: tuple, key: tuple, expected: tuple) -> None:
    rows = 3
    words = philox4x32(np.tile(np.uint32(counter), (rows, 1)), np.tile(np.uint32(key), (rows, 1)))
    assert words.tolist() == [list(expected)] * rows


def test_each_field_of_a_stream_key_names_another_stream() -> None:
    keys = [
        StreamKey(0, "1", 1, 1),
        StreamKey(1, "1", 1, 1),
        StreamKey(0, "11", 1, 1),
        StreamKey(0, "1", 11, 1),
        StreamKey(0, "1", 1, 11),
        StreamKey(0, "1", 1, 1, "eval"),
    ]
    assert len({tuple(stream_words(key).tolist()) for key in keys}) == len(keys)


def test_a_token_draws_the_same_number_alone_and_in_a_batch() -> None:
    words = np.stack([stream_words(StreamKey(0, "p", 0, index)) for index in range(5)])
    together = uniforms(words, np.arange(5) * 7)
    alone = [uniforms(words[[row]], np.array([row * 7]))[0] for row in range(5)]
    assert together.tolist() == alone


def test_uniform_numbers_fill_the_unit_interval_evenly() -> None:
    words = np.tile(stream_words(StreamKey(0, "p", 0, 0)), (20_000, 1))
    numbers = uniforms(words, np.arange(20_000))
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert chi_square < 43.8  # the 0.1% point at 19 degrees of freedom
