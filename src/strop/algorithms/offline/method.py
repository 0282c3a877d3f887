"""What the offline trainer asks of a method.

groups of a batch --weights--> plan --(reference, reference point)--> loss of each micro-batch
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from strop.protocols import LossInputs, LossOutputs
from strop.records import Group
from strop.records.packing import SampleKey


@dataclass(frozen=True, slots=True)
class OfflineNeeds:
    """What a method wants computed for it."""

    reference: bool = False
    """`LossInputs.reference_logprobs_N`."""
    reference_point: bool = False
    """The fields `labels` and `reference_point`."""
    whole_groups: bool = False
    """The samples of a group in one micro-batch."""
    known_gradient: bool = False
    """The loss is minus the weighted sum of the log-probs, so that an engine may save work."""


class OfflineMethod(Protocol):
    """A pure loss with its settings."""

    @property
    def name(self) -> str:
        """The name that the run file gives it."""

    @property
    def needs(self) -> OfflineNeeds:
        """What must be computed for it."""

    def weights(self, groups: Sequence[Group]) -> dict[SampleKey, float]:
        """The weight of each trained token of a sample, over the whole batch."""

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """The loss of one micro-batch; its metrics hold `offline/loss`, a mean over what the method counts."""


def equal_weights(groups: Sequence[Group]) -> dict[SampleKey, float]:
    """Gives every group of the batch the same share: 1 / groups on each sample of it."""
    return {(g, s): 1 / len(groups) for g, group in enumerate(groups) for s in range(len(group.samples))}
