r"""IPO: the margin of a pair goes to a fixed number, instead of to infinity.

    L = ( h - 1 / (2 beta) )^2,     h = r_chosen / |y_chosen| - r_rejected / |y_rejected|,
    r = log pi(y | x) - log pi_ref(y | x)

Source: Azar et al. 2023, "A General Theoretical Paradigm to Understand Learning from Human Preferences",
arXiv:2310.12036, equation 17, whose tau is our beta.

Deviations: equation 17 has h of whole answers, without their lengths |y|. Over tokens the target 1 / (2 beta) would
then mean another thing for each length, so the mean over the tokens of an answer is taken. TRL does so too, and says
that the authors confirmed it as what the paper's results were made with.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from strop.algorithms.offline.method import OfflineNeeds, equal_weights
from strop.algorithms.offline.ratios import lengths, log_ratios, pair_outputs, paired
from strop.protocols import LossInputs, LossOutputs
from strop.records import Group
from strop.records.packing import SampleKey


@dataclass(frozen=True, slots=True)
class Ipo:
    """Identity preference optimization."""

    beta: float
    name = "ipo"
    needs = OfflineNeeds(reference=True, whole_groups=True)

    def weights(self, groups: Sequence[Group]) -> dict[SampleKey, float]:
        """Every pair of the batch weighs the same."""
        return equal_weights(groups)

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Returns the weighted loss of the pairs of one micro-batch; its rewards are beta times the mean log-ratio."""
        ratios_S = log_ratios(inputs) / lengths(inputs)
        chosen_P, rejected_P = paired(ratios_S)
        losses_P = (chosen_P - rejected_P - 1 / (2 * self.beta)) ** 2
        return pair_outputs(losses_P, self.beta * ratios_S, inputs)
