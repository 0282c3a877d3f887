r"""GAE: each token against what a critic said the state before it was worth.

    delta_t = r_t + gamma V_(t+1) - V_t        r_t = k_t, and for the last token k_t + R; V after the last token is 0
    A_t = delta_t + gamma lambda A_(t+1)
    returns_t = A_t + V_t                      what the critic learns

over the sampled tokens only, with the sample's reward R and what the tokens earned of their own k_t: the state after a
turn is the one before the next sampled token, whatever was said between (`samples.py`). The policy gets whitened
advantages, as is practice with PPO:

    (A_t - mean(A)) / std(A)                   over all sampled tokens of the batch that bear loss

Source: Schulman et al. 2015, arXiv:1506.02438, equation 16; whitening as in Huang et al. 2024, "The N+ implementation
details of RLHF with PPO", arXiv:2403.17031.
Deviations: the deviation divides by n and has no epsilon; a batch whose advantages are all equal gets exactly 0. Masked
and invalid samples are in neither mean nor deviation, and the returns of an invalid sample are its values, so that it
teaches the critic nothing either. As in TRL and verl a truncated sample ends as any other does: nothing is expected
behind its last token.
Reads `values` of the rows and sets `returns`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from strop.algorithms.advantages.moments import Floats
from strop.algorithms.advantages.samples import (
    discounted_sums,
    is_valid,
    normalised_over_batch,
    spread,
    trajectory_field,
    trajectory_rewards,
)
from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group, Sample


def gae(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
    """Puts the whitened advantage on each sampled token and the critic's target on each row.

    Raises ValueError where a row of a valid sample lacks `values`.
    """
    found = [[_advantages(sample, settings) for sample in group.samples] for group in groups]
    with_returns = [
        group.with_samples([_with_returns(sample, own) for sample, own in zip(group.samples, of_group, strict=True)])
        for group, of_group in zip(groups, found, strict=True)
    ]
    return normalised_over_batch(with_returns, found, settings)


def estimated(rewards: Floats, values: Floats, discount: float, decay: float) -> Floats:
    """Returns the advantages of one trajectory, [n], from its rewards and values."""
    deltas = rewards + discount * np.append(values[1:], 0.0) - values if len(values) else values
    return discounted_sums(deltas, discount * decay)


def _advantages(sample: Sample, settings: ResolvedAlgorithm) -> Floats | None:
    if sample.reward is None or not is_valid(sample):
        return None
    values = trajectory_field(sample, "values")
    return estimated(trajectory_rewards(sample, sample.reward), values, settings.discount, settings.gae_lambda)


def _with_returns(sample: Sample, advantages: Floats | None) -> Sample:
    """The sample with what its values should have been; an invalid one's values are left as they are."""
    if advantages is None:
        rows = (row.with_fields(returns=row.fields["values"]) if "values" in row.fields else row for row in sample.rows)
        return replace(sample, rows=tuple(rows))
    targets = spread(sample, advantages + trajectory_field(sample, "values"))
    pairs = zip(sample.rows, targets, strict=True)
    return replace(sample, rows=tuple(row.with_fields(returns=target.astype(np.float32)) for row, target in pairs))
