"""Aggregation weights against the loss of a batch written out by hand."""

import random

import pytest

from strop.algorithms.aggregation import token_weights

AGGREGATIONS = ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"]
LOSSES = {"a": [2.0] * 5, "b": [10.0]}


def aggregated(aggregation: str, constant_length: int = 10) -> float:
    weights = token_weights({key: len(rows) for key, rows in LOSSES.items()}, aggregation, constant_length)
    return sum(weights[key] * loss for key, rows in LOSSES.items() for loss in rows)


def test_two_sequences_of_unequal_length_give_the_published_numbers() -> None:
    assert aggregated("token_mean") == pytest.approx(20 / 6)
    assert aggregated("sequence_mean_token_mean") == pytest.approx(6.0)
    assert aggregated("sequence_mean_token_sum") == pytest.approx(10.0)
    assert aggregated("constant") == pytest.approx(1.0)


def oracle(samples: list[list[float]], aggregation: str, constant_length: int) -> float:
    """The loss of a mini-batch as its definition says, sample by sample."""
    match aggregation:
        case "token_mean":
            return sum(loss for losses in samples for loss in losses) / sum(len(losses) for losses in samples)
        case "sequence_mean_token_mean":
            return sum(sum(losses) / len(losses) for losses in samples) / len(samples)
        case "sequence_mean_token_sum":
            return sum(sum(losses) for losses in samples) / len(samples)
    return sum(sum(losses) / constant_length for losses in samples) / len(samples)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("lengths", [[1], [1, 10_000], [3, 7, 1, 20, 20, 512]], ids=str)
def test_the_weighted_sum_is_the_loss_of_the_definition_however_the_mini_batch_is_cut(
    aggregation: str, lengths: list[int]
) -> None:
    draw = random.Random(0)
    samples = [[draw.gauss(0, 1) for _ in range(length)] for length in lengths]
    weights = token_weights(dict(enumerate(lengths)), aggregation, 128)
    parts = [weights[key] * sum(losses) for key, losses in enumerate(samples)]
    expected = oracle(samples, aggregation, 128)
    for cut in range(len(parts) + 1):
        assert sum(parts[:cut]) + sum(parts[cut:]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_to_learn_from_gives_no_weights(aggregation: str) -> None:
    assert token_weights({}, aggregation, 10) == {}
    assert token_weights({"a": 0}, aggregation, 10) == {}


def test_empty_samples_are_in_no_denominator() -> None:
    assert token_weights({"a": 4, "b": 0}, "sequence_mean_token_mean", 1) == {"a": 0.25}
