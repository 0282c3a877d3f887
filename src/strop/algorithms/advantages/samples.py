"""What estimators share: the returns of samples and of their tokens, and advantages put on rows.

What holds for every estimator:

- A sample without a valid reward, aborted or failed, has advantage 0 and is in no statistic.
- A sample's trajectory is the tokens that the policy sampled, those of all its rows one after the other: a conversation
  that forked into several rows is one trajectory with one reward, earned by its last sampled token. Tokens that the
  policy did not sample (prompt, tool output, history written anew) are not in it: they bear no advantage, no value and
  no discount, and what is earned behind them reaches the sampled tokens before them undiminished.
- Statistics over the whole batch are over what bears loss: a truncated sample that is to be masked is in the statistics
  of its group, where its reward says how hard the prompt is, and not in those of the batch.
"""

from collections.abc import Callable, Sequence

import numpy as np

from strop.algorithms.advantages.moments import Floats, bounded, moments
from strop.config.bundles import ResolvedAlgorithm
from strop.records import FinishState, Group, Row, Sample


def is_valid(sample: Sample) -> bool:
    """Whether the sample ended and has a reward."""
    return sample.reward is not None and sample.finish not in (FinishState.ABORTED, FinishState.FAILED)


def bears_loss(sample: Sample, settings: ResolvedAlgorithm) -> bool:
    """Invalid samples never do; truncated ones do unless they are to be masked."""
    return is_valid(sample) and not (sample.is_truncated and settings.truncated == "mask")


def sample_return(sample: Sample) -> float | None:
    """The reward of a sample with what its tokens earned of their own; None where it is invalid."""
    if sample.reward is None or not is_valid(sample):
        return None
    return sample.reward + sum(float(token_rewards(row).sum()) for row in sample.rows)


def sample_returns(group: Group) -> list[float | None]:
    """The return of each sample of a group."""
    return [sample_return(sample) for sample in group.samples]


def over_valid(returns: Sequence[float | None], compare: Callable[[Floats], Floats]) -> list[float]:
    """Returns what `compare` makes of the valid returns, [n] to [n], and 0 for the invalid ones.

    Where all valid returns are equal (decided by max - min), or there are fewer than two, every sample gets exactly 0.
    """
    valid = np.array([value for value in returns if value is not None], dtype=np.float64)
    if len(valid) < 2 or valid.max() == valid.min():
        return [0.0] * len(returns)
    found = iter(compare(valid).tolist())
    return [0.0 if value is None else next(found) for value in returns]


def with_sample_advantages(group: Group, advantages: Sequence[float]) -> Group:
    """Returns the group with one advantage a sample on all of its sampled tokens."""
    pairs = zip(group.samples, bounded(np.array(advantages, dtype=np.float64)).tolist(), strict=True)
    return group.with_samples([sample.with_token_advantage(advantage) for sample, advantage in pairs])


# ------------------------------------------------------------------------------------------- trajectories


def token_rewards(row: Row) -> Floats:
    """What each token of a row earned of its own, [T]; 0 where nothing was said."""
    own = row.fields.get("token_rewards")
    return np.zeros(row.num_tokens) if own is None else own.astype(np.float64)


def trajectory_field(sample: Sample, name: str) -> Floats:
    """A field of the tokens that the policy sampled, [n] over all rows. Raises ValueError where a row lacks it."""
    rows = [row for row in sample.rows if row.num_sampled_tokens]
    if any(name not in row.fields for row in rows):
        raise ValueError(
            f"every row with sampled tokens must have the field {name!r} before its advantages, sample {sample.index} "
            "has a row without; score the groups first, as a training step does where `Algorithm.needs` asks for it"
        )
    return np.concatenate([np.empty(0), *(row.fields[name][row.loss_mask].astype(np.float64) for row in rows)])


def trajectory_rewards(sample: Sample, reward: float) -> Floats:
    """What each sampled token earned, [n] over all rows: its own reward, and the last one the sample's as well."""
    earned = np.concatenate([np.empty(0), *(token_rewards(row)[row.loss_mask] for row in sample.rows)])
    earned[-1:] += reward
    return earned


def discounted_sums(values: Floats, discount: float) -> Floats:
    """Returns y with y_t = x_t + discount y_(t+1), [n], by doubling the stretch that each sum covers."""
    sums = values.copy()
    stretch = 1
    while stretch < len(sums):
        sums[:-stretch] = sums[:-stretch] + discount**stretch * sums[stretch:]
        stretch *= 2
    return sums


def spread(sample: Sample, values: Floats) -> list[Floats]:
    """Puts the values of a trajectory, [n], at their places in each row, 0 elsewhere, [T] a row."""
    parts = np.split(bounded(values), np.cumsum([row.num_sampled_tokens for row in sample.rows])[:-1])
    whole = [np.zeros(row.num_tokens) for row in sample.rows]
    for row, part, target in zip(sample.rows, parts, whole, strict=bool(sample.rows)):
        target[row.loss_mask] = part
    return whole


def with_trajectory_advantages(group: Group, advantages: Sequence[Floats | None]) -> Group:
    """Returns the group with the advantages of each sample's trajectory on its rows; None stands for 0."""
    pairs = zip(group.samples, advantages, strict=True)
    return group.with_samples(
        [
            sample.with_token_advantage(0.0) if values is None else sample.with_advantages(spread(sample, values))
            for sample, values in pairs
        ]
    )


def normalised_over_batch(
    groups: Sequence[Group], trajectories: Sequence[Sequence[Floats | None]], settings: ResolvedAlgorithm
) -> list[Group]:
    """Puts (value - mean) / deviation on the tokens of every trajectory as their advantages.

    Mean and standard deviation (divided by n) are over all sampled tokens of the groups that bear loss. A batch whose
    values are all equal has advantage exactly 0 everywhere.

    Args:
        groups: the whole batch.
        trajectories: values by group and sample, [n] over the sampled tokens of all rows; None where it is invalid.
        settings: say what is masked.
    """
    counted = [
        values
        for group, of_group in zip(groups, trajectories, strict=True)
        for sample, values in zip(group.samples, of_group, strict=True)
        if values is not None and bears_loss(sample, settings)
    ]
    over_batch = moments(np.concatenate([np.empty(0), *counted]))
    return [
        with_trajectory_advantages(
            group, [None if values is None else over_batch.standardised(values) for values in of_group]
        )
        for group, of_group in zip(groups, trajectories, strict=True)
    ]
