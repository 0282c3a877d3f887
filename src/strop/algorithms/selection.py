"""Which samples of a group are trained on: those whose rewards differ most.

With n samples and k to keep, the subset S of greatest reward variance,

    S = argmax_{|S| = k} Var(r_i, i in S),    always the i highest and the k - i lowest rewards for some i,

so that k + 1 candidates are compared after sorting (Xu et al. 2025, "Not All Rollouts are Useful: Down-Sampling
Rollouts in LLM Reinforcement Learning", arXiv:2504.13818, max-variance down-sampling). Where rewards are 0 or 1 and
there are enough of both, half of S has each.

The choice is exact and needs no random numbers: variances are compared as fractions; of equal ones the split nearest to
the middle wins, then the one with more high rewards; of equal rewards the samples that come first. Only samples that
bear loss are chosen from; a group with no more than k of them stays as it is. The others are gone from the group: in no
loss, denominator or baseline, so that advantages compare the chosen samples among themselves. What a step reports
of all generated samples is of the groups before the selection.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from strop.algorithms.advantages.samples import bears_loss
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group


def select_samples(group: Group, settings: ResolvedAlgorithm) -> Group:
    """Returns the group with `keep_samples` of its samples, in their order; as it came where that is left out."""
    if settings.keep_samples is None:
        return group
    candidates = [sample for sample in group.samples if bears_loss(sample, settings)]
    if len(candidates) <= settings.keep_samples:
        return group
    rewards = [sample.reward for sample in candidates if sample.reward is not None]
    return group.with_samples([candidates[place] for place in most_different(rewards, settings.keep_samples)])


def most_different(rewards: Sequence[float], num_kept: int) -> list[int]:
    """Returns the places, ascending, of the `num_kept` rewards of greatest variance; there must be as many."""
    ascending = sorted(rewards)
    exact = [Fraction(reward) for reward in ascending]
    sums, squares = ([Fraction(0), *accumulate(values)] for values in (exact, [reward * reward for reward in exact]))

    def rank(num_high: int) -> tuple[Fraction, int, int]:
        """The variance times the square of `num_kept`, then what decides between equal ones."""
        low, high = num_kept - num_high, len(rewards) - num_high
        of_sums, of_squares = (before[low] + before[-1] - before[high] for before in (sums, squares))
        return num_kept * of_squares - of_sums**2, -abs(num_high - low), num_high

    num_high = max(range(num_kept + 1), key=rank)
    wanted = Counter(ascending[: num_kept - num_high] + ascending[len(rewards) - num_high :])
    kept = []
    for place, reward in enumerate(rewards):
        if wanted[reward] > 0:
            wanted[reward] -= 1
            kept.append(place)
    return kept
