r"""What a sample's reward loses for its length, or because its token budget cut it.

`truncated` says what becomes of samples that were cut:

    keep            as it was judged
    zero            0, whatever it was judged
    mask            as it was judged, and no loss: it is in no denominator either (`bears_loss`)
    soft-overlong   as it was judged, less a punishment that grows with its length |y|, cut or not
                    (Yu et al. 2025, DAPO, arXiv:2503.14476, equation 13), L_max and L_buffer in sampled tokens:

                        0                                     |y| <= L_max - L_buffer
                        (L_max - L_buffer - |y|) / L_buffer   L_max - L_buffer < |y| <= L_max
                        -1                                    L_max < |y|

`length_penalty` then takes off every sample, against the others of its group (Kimi Team 2025, Kimi k1.5,
arXiv:2501.12599, section 2.3.3):

    length_penalty (|y| - min |y|) / (max |y| - min |y|)      nothing where all are equally long

Deviations: the paper's length reward is 0.5 less that fraction, so that short samples gain and long ones lose, and a
wrong answer gains nothing. Here nobody gains, right or wrong: a right answer keeps at least its reward less the
penalty, which should be below the difference of right and wrong. Minimum and maximum are of the samples with a reward.

Whether a sample was cut is what the engine reported. An invalid reward stays invalid. What changes a reward is one of
its parts, `truncation` or `length`, so that the parts still add up to the reward and nothing is changed twice. A group
of equal rewards and unequal lengths has a signal afterwards, and dynamic sampling keeps it.
"""

from collections.abc import Sequence
from dataclasses import replace

from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group, RewardPart, Sample

TRUNCATION, LENGTH = "truncation", "length"
"""The reward parts that say what truncation and length cost."""


def shape_rewards(group: Group, settings: ResolvedAlgorithm) -> Group:
    """Returns the group with what truncation and length cost on every sample that has a reward."""
    if settings.truncated in ("zero", "soft-overlong"):
        changes = [_truncation_change(sample, settings) for sample in group.samples]
        group = _changed(group, TRUNCATION, changes)
    if settings.length_penalty is not None:
        lengths = [None if sample.reward is None else sample.num_sampled_tokens for sample in group.samples]
        group = _changed(group, LENGTH, length_changes(lengths, settings.length_penalty))
    return group


def overlong_punishment(num_tokens: int, max_tokens: int, buffer_tokens: int) -> float:
    """DAPO's soft punishment of a sample of so many tokens: from 0 to -1."""
    overrun = num_tokens - (max_tokens - buffer_tokens)
    return -min(1.0, max(0, overrun) / buffer_tokens)


def length_changes(lengths: Sequence[int | None], penalty: float) -> list[float]:
    """What lengths do to the rewards of one group: from 0 for the shortest to -penalty for the longest.

    None is the length of a sample without a reward: it is compared with nobody and loses nothing.
    """
    valid = [length for length in lengths if length is not None]
    shortest, longest = min(valid, default=0), max(valid, default=0)
    if shortest == longest:
        return [0.0] * len(lengths)
    return [0.0 if length is None else penalty * (shortest - length) / (longest - shortest) for length in lengths]


def judged_reward(sample: Sample) -> float | None:
    """The reward before truncation or length cost anything; None where it is invalid."""
    if sample.reward is None:
        return None
    parts = (sample.reward_parts.get(name) for name in (TRUNCATION, LENGTH))
    return sample.reward - sum(part.value for part in parts if part is not None and part.value is not None)


def _truncation_change(sample: Sample, settings: ResolvedAlgorithm) -> float:
    if settings.truncated == "zero":
        return 0.0 - (sample.reward or 0.0) if sample.is_truncated else 0.0
    return overlong_punishment(sample.num_sampled_tokens, settings.overlong_tokens, settings.overlong_buffer_tokens)


def _changed(group: Group, name: str, changes: Sequence[float]) -> Group:
    """The group with the changes as a reward part of that name, where they are not in it yet."""
    pairs = zip(group.samples, changes, strict=True)
    return group.with_samples([_with_part(sample, name, change) for sample, change in pairs])


def _with_part(sample: Sample, name: str, change: float) -> Sample:
    if sample.reward is None or name in sample.reward_parts:
        return sample
    parts = {**sample.reward_parts, name: RewardPart(change)}
    return replace(sample, reward=sample.reward + change, reward_parts=parts)
