"""Aggregation weights against the loss of a batch written out by hand."""

import pytest

from strop.algorithms.aggregation import token_weights

LOSSES = {"a": [2.0] * 5, "b": [10.0]}


def aggregated(aggregation: str, constant_length: int = 10) -> float:
    weights = token_weights({key: len(rows) for key, rows in LOSSES.items()}, aggregation, constant_length)
    return sum(weights[key] * loss for key, rows in LOSSES.items() for loss in rows)


def test_two_sequences_of_unequal_length_give_the_published_numbers() -> None:
    assert aggregated("token_mean") == pytest.approx(20 / 6)
    assert aggregated("sequence_mean_token_mean") == pytest.approx(6.0)
    assert aggregated("sequence_mean_token_sum") == pytest.approx(10.0)
    assert aggregated("constant") == pytest.approx(1.0)


@pytest.mark.parametrize(
    "aggregation", ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"]
)
def test_nothing_to_learn_from_gives_no_weights(aggregation: str) -> None:
    assert token_weights({}, aggregation, 10) == {}
    assert token_weights({"a": 0}, aggregation, 10) == {}


def test_empty_samples_are_in_no_denominator() -> None:
    assert token_weights({"a": 4, "b": 0}, "sequence_mean_token_mean", 1) == {"a": 0.25}
