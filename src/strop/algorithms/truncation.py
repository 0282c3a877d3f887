r"""What a sample earns that its token budget cut, or that came near to it.

    keep            as it was judged
    zero            0, whatever it was judged
    mask            as it was judged, and no loss: it is in no denominator either (`Grpo.weights`)
    soft-overlong   as it was judged, less a punishment that grows with its length |y|, cut or not
                    (Yu et al. 2025, DAPO, arXiv:2503.14476, equation 13), L_max and L_buffer in sampled tokens:

                        0                                     |y| <= L_max - L_buffer
                        (L_max - L_buffer - |y|) / L_buffer   L_max - L_buffer < |y| <= L_max
                        -1                                    L_max < |y|

Whether a sample was cut is what the engine reported. An invalid reward stays invalid. What changes a reward is one of
its parts, `truncation`, so that the parts still add up to the reward and nothing is changed twice.
"""

from dataclasses import replace

from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group, RewardPart, Sample

PART = "truncation"
"""The reward part that says what truncation or length cost."""


def shape_rewards(group: Group, settings: ResolvedAlgorithm) -> Group:
    """Returns the group with what truncation or length costs on every sample that has a reward."""
    if settings.truncated not in ("zero", "soft-overlong"):
        return group
    return group.with_samples([_shaped(sample, settings) for sample in group.samples])


def overlong_punishment(num_tokens: int, max_tokens: int, buffer_tokens: int) -> float:
    """DAPO's soft punishment of a sample of so many tokens: from 0 to -1."""
    overrun = num_tokens - (max_tokens - buffer_tokens)
    return -min(1.0, max(0, overrun) / buffer_tokens)


def judged_reward(sample: Sample) -> float | None:
    """The reward before truncation or length cost anything; None where it is invalid."""
    part = sample.reward_parts.get(PART)
    if sample.reward is None or part is None or part.value is None:
        return sample.reward
    return sample.reward - part.value


def _shaped(sample: Sample, settings: ResolvedAlgorithm) -> Sample:
    if sample.reward is None or PART in sample.reward_parts:
        return sample
    if settings.truncated == "zero":
        change = -sample.reward if sample.is_truncated else 0.0
    else:
        change = overlong_punishment(
            sample.num_sampled_tokens, settings.overlong_tokens, settings.overlong_buffer_tokens
        )
    parts = {**sample.reward_parts, PART: RewardPart(change)}
    return replace(sample, reward=sample.reward + change, reward_parts=parts)
