r"""Group-relative advantages: a sample against the mean of its own group.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6)        `sample`: std divides by n - 1; `population`: by n
    A_i = R_i - mean(R)                            `none`

Source: Shao et al. 2024, DeepSeekMath (GRPO), arXiv:2402.03300, section 4.1.2; without the division Liu et al. 2025
(Dr.GRPO), arXiv:2503.20783.
Deviations: a group of one gets 0 (verl takes its raw reward). TRL adds 1e-4 to the deviation, verl 1e-6.
"""

from collections.abc import Sequence

from strop.algorithms.advantages.moments import Floats, moments
from strop.algorithms.advantages.samples import over_valid, sample_returns, with_sample_advantages
from strop.config.algorithm import GroupStd
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group

EPSILON = 1e-6
"""Added to the standard deviation, as in the implementations that follow DeepSeekMath."""


def group_relative(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's group advantage on its sampled tokens."""
    return [
        with_sample_advantages(group, group_advantages(sample_returns(group), settings.advantage_std))
        for group in groups
    ]


def group_advantages(rewards: Sequence[float | None], std: GroupStd) -> list[float]:
    """Returns (reward - group mean) / (group std + 1e-6), or without the division for `none`.

    A None reward is invalid: it gets 0 and stays out of mean and deviation. A group without signal (all
    valid rewards equal, or fewer than two) gets exactly 0 everywhere: that is decided by max - min, since
    the float32 deviation of equal numbers is not 0.
    """
    return over_valid(rewards, lambda valid: compared(valid, std))


def compared(valid: Floats, std: GroupStd) -> Floats:
    """Returns the advantages of a group's valid rewards, [n] to [n]."""
    found = moments(valid, degrees_lost=1 if std == "sample" else 0)
    return found.centred(valid) if std == "none" else found.standardised(valid, EPSILON)
