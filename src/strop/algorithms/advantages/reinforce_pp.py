r"""REINFORCE++: discounted returns of tokens, normalised over the whole batch.

    G_t = sum_{t' >= t} gamma^(t' - t) r_t'        r_t' = k_t', and for the last token k_t' + R
    A_t = (G_t - mean(G)) / std(G)

over all sampled tokens of the batch that bear loss, with the sample's reward R and what the tokens earned of their own
k_t (the paper's KL term; 0 without one). The baseline form puts R - mean(R of the group) in the place of R first. t
counts sampled tokens: what is earned behind a tool's output reaches the tokens before it (`samples.py`).

Source: Hu et al. 2025, arXiv:2501.03262, the global advantage normalisation and the variant with baseline.
Deviations: the deviation divides by n and has no epsilon; a batch whose values are all equal gets exactly 0. A group of
one has baseline R in the second form, as its mean is (verl subtracts nothing there). verl ends a return at each token
that was not sampled, so that only the last turn of a conversation is rewarded; it drops discount and token rewards in
the form with baseline. As in the paper, the batch's mean is taken off all tokens: a group whose rewards are all equal
is not at exactly 0 unless the whole batch is; `drop_zero_signal` leaves such groups out.
"""

from collections.abc import Sequence

from strop.algorithms.advantages.group import compared
from strop.algorithms.advantages.moments import Floats
from strop.algorithms.advantages.samples import (
    discounted_sums,
    is_valid,
    normalised_over_batch,
    over_valid,
    trajectory_rewards,
)
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def reinforce_pp(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts the normalised discounted return on each sampled token."""
    rewards = [_valid_rewards(group) for group in groups]
    return _normalised(groups, rewards, settings)


def reinforce_pp_baseline(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Does the same with the group mean taken off each sample's reward first."""
    rewards = [_above_group_mean(_valid_rewards(group)) for group in groups]
    return _normalised(groups, rewards, settings)


def _valid_rewards(group: Group) -> list[float | None]:
    return [sample.reward if is_valid(sample) else None for sample in group.samples]


def _above_group_mean(rewards: Sequence[float | None]) -> list[float | None]:
    centred = over_valid(rewards, lambda valid: compared(valid, "none"))
    return [None if reward is None else value for reward, value in zip(rewards, centred, strict=True)]


def _normalised(
    groups: Sequence[Group], rewards: Sequence[Sequence[float | None]], settings: ResolvedAlgorithm
) -> list[Group]:
    returns = [
        _token_returns(group, of_group, settings.discount) for group, of_group in zip(groups, rewards, strict=True)
    ]
    return normalised_over_batch(groups, returns, settings)


def _token_returns(group: Group, rewards: Sequence[float | None], discount: float) -> list[Floats | None]:
    return [
        None if reward is None else discounted_sums(trajectory_rewards(sample, reward), discount)
        for sample, reward in zip(group.samples, rewards, strict=True)
    ]
