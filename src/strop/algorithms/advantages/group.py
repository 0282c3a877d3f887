"""Group-relative advantages: a sample against the mean of its own group."""

from collections.abc import Sequence

from strop.algorithms.advantages.samples import sample_return, with_sample_advantages
from strop.config.algorithm import GroupStd
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group

EPSILON = 1e-6
"""Added to the standard deviation, as in the implementations that follow DeepSeekMath."""


def group_relative(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's group advantage on its sampled tokens."""
    return [
        with_sample_advantages(
            group, group_advantages([sample_return(sample) for sample in group.samples], settings.advantage_std)
        )
        for group in groups
    ]


def group_advantages(rewards: Sequence[float | None], std: GroupStd) -> list[float]:
    """Returns (reward - group mean) / (group std + 1e-6), or without the division for `none`.

    A None reward is invalid: it gets 0 and stays out of mean and deviation. A group without signal (all
    valid rewards equal, or fewer than two) gets exactly 0 everywhere: that is decided by max - min, since
    the float32 deviation of equal numbers is not 0.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1 (std); Liu et al. 2025, arXiv:2503.20783 (none).
    `sample` divides the squared deviations by n - 1, `population` by n.
    """
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2 or max(valid) == min(valid):
        return [0.0] * len(rewards)
    mean = sum(valid) / len(valid)
    scale = 1.0
    if std != "none":
        squares = sum((reward - mean) ** 2 for reward in valid)
        scale = (squares / (len(valid) - (std == "sample"))) ** 0.5 + EPSILON
    return [0.0 if reward is None else (reward - mean) / scale for reward in rewards]
