r"""GPG: the plain policy gradient of a group, scaled up for the groups that teach nothing.

    A_i = alpha (R_i - mean(R)) / F        alpha = B / (B - M)

with B the valid samples of the batch, M those of them in groups without signal (all returns equal), and F = 1, or the
group's standard deviation where `advantage_std` asks for it. Groups without signal are in the denominator of the loss:
without alpha the gradient shrinks with their number.

Source: Chu et al. 2025, arXiv:2504.02546, "accurate gradient estimation"; F = 1 against the bias of the advantage.
Deviations: a lack of groups with signal is met by `drop_zero_signal`, which samples more and leaves M = 0, not by
waiting for the next batch. A batch without any signal has alpha 1 and advantage 0. verl's alpha is another: samples
over samples of non-zero reward.
"""

from collections.abc import Sequence

from strop.algorithms.advantages.group import group_advantages
from strop.algorithms.advantages.samples import sample_returns, with_sample_advantages
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def gpg(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts each sample's scaled group advantage on its sampled tokens."""
    returns = [sample_returns(group) for group in groups]
    scale = signal_scale(returns)
    return [
        with_sample_advantages(
            group, [scale * advantage for advantage in group_advantages(of_group, settings.advantage_std)]
        )
        for group, of_group in zip(groups, returns, strict=True)
    ]


def signal_scale(returns: Sequence[Sequence[float | None]]) -> float:
    """Returns alpha: valid samples over valid samples of groups with signal; 1 where no group has any."""
    valid = [[value for value in of_group if value is not None] for of_group in returns]
    num_valid = sum(len(of_group) for of_group in valid)
    num_with_signal = sum(len(of_group) for of_group in valid if len(set(of_group)) > 1)
    return num_valid / num_with_signal if num_with_signal else 1.0
