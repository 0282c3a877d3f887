"""GDPO, which normalises each reward by itself, against a loop written from the paper."""

import math
import statistics

import pytest

from strop.algorithms.advantages.gdpo import decoupled_sums, gdpo
from strop.algorithms.advantages.group import EPSILON
from strop.records import Group, RewardPart
from support.advantages import drawn_group, drawn_sample, resolved, sampled_advantages


def parted_group(*columns: tuple[list[float | None], float]) -> Group:
    """A group whose samples have one part a column (values, weight)."""
    samples = []
    for index in range(len(columns[0][0])):
        parts = {str(k): RewardPart(values[index], weight) for k, (values, weight) in enumerate(columns)}
        bearing = [part for part in parts.values() if part.weight != 0]
        is_valid = all(part.value is not None for part in bearing)
        reward = sum(part.weight * part.value for part in bearing) if is_valid else None
        samples.append(drawn_sample(index, reward, "..xx", parts=parts))
    return drawn_group([]).with_samples(samples)


def oracle(groups: list[Group]) -> list[list[float]]:
    sums: list[list[float | None]] = []
    for group in groups:
        of_group: list[float | None] = [None if sample.reward is None else 0.0 for sample in group.samples]
        for name in ("0", "1"):
            said = [s.reward_parts[name].value if s.reward is not None else None for s in group.samples]
            valid = [value for value in said if value is not None]
            for index, value in enumerate(said):
                if value is not None and max(valid) > min(valid):
                    normalised = (value - statistics.fmean(valid)) / (statistics.stdev(valid) + EPSILON)
                    of_group[index] += group.samples[index].reward_parts[name].weight * normalised
        sums.append(of_group)
    every = [value for of_group in sums for value in of_group if value is not None]
    mean, deviation = statistics.fmean(every), statistics.stdev(every) + EPSILON
    return [[0.0 if value is None else (value - mean) / deviation for value in of_group] for of_group in sums]


def test_each_part_is_normalised_in_its_group_and_the_sum_over_the_batch() -> None:
    groups = [
        parted_group(([1.0, 0.0, 0.0, 1.0], 1.0), ([10.0, 400.0, 50.0, 90.0], 0.5)),
        parted_group(([0.0, 0.0, 0.0], 1.0), ([1.0, 2.0, 4.0], 0.5)),
        parted_group(([0.0, 1.0, None], 1.0), ([1.0, 2.0, 4.0], 0.5)),
        parted_group(([1.0], 1.0), ([1.0], 0.5)),
    ]
    for group, expected in zip(gdpo(groups, resolved("gdpo")), oracle(groups), strict=True):
        for found, value in zip(sampled_advantages(group), expected, strict=True):
            assert found == pytest.approx([value] * 2, rel=1e-5, abs=1e-6)


def test_mixtures_of_equal_sum_differ_as_in_the_example_of_the_paper() -> None:
    """Two rewards of 0 or 1, two samples: GRPO cannot tell (0, 1) from (0, 2), the sum over parts can."""
    one_better = parted_group(([0.0, 1.0], 1.0), ([0.0, 0.0], 1.0))
    both_better = parted_group(([0.0, 1.0], 1.0), ([0.0, 1.0], 1.0))
    half = math.sqrt(0.5)
    assert decoupled_sums(one_better.samples, "sample") == pytest.approx([-half, half], rel=1e-5)
    assert decoupled_sums(both_better.samples, "sample") == pytest.approx([-2 * half, 2 * half], rel=1e-5)


def test_a_part_without_weight_or_word_adds_nothing() -> None:
    weightless = parted_group(([0.0, 1.0, 0.0], 1.0), ([9.0, None, -5.0], 0.0))
    alone = parted_group(([0.0, 1.0, 0.0], 1.0))
    assert decoupled_sums(weightless.samples, "sample") == decoupled_sums(alone.samples, "sample")


def test_a_sample_without_parts_has_its_reward_for_its_only_one() -> None:
    (group,) = gdpo([drawn_group([1.0, 0.0, 0.0, 0.0])], resolved("gdpo"))
    assert [values[0] for values in sampled_advantages(group)] == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)


def test_without_the_groups_deviation_parts_keep_their_scale() -> None:
    group = parted_group(([0.0, 1.0], 1.0), ([0.0, 4.0], 0.5))
    assert decoupled_sums(group.samples, "none") == [-1.5, 1.5]
