r"""DPO: the reward model that a policy implies, fitted to preferences.

    L = - log sigmoid( beta ( r_chosen - r_rejected ) ),     r = log pi(y | x) - log pi_ref(y | x)

Source: Rafailov et al. 2023, "Direct Preference Optimization: Your Language Model is Secretly a Reward Model",
arXiv:2305.18290, equation 7. Label smoothing e, where a share e of the labels is taken to be wrong, is conservative
DPO (Mitchell 2023, "A note on DPO with noisy preferences and relationship to IPO", equation 3):

    L = - (1 - e) log sigmoid( beta (r_chosen - r_rejected) )  -  e log sigmoid( - beta (r_chosen - r_rejected) )

Deviations: none in the loss; the mean is over the pairs of the batch. Chosen and rejected answer one prompt, which is
computed once for both. TRL's `sigmoid` loss is the same; its `robust` loss, which divides by 1 - 2 e, is not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.nn.functional import logsigmoid

from strop.algorithms.offline.method import OfflineNeeds, equal_weights
from strop.algorithms.offline.ratios import log_ratios, pair_outputs, paired
from strop.protocols import LossInputs, LossOutputs
from strop.records import Group
from strop.records.packing import SampleKey


@dataclass(frozen=True, slots=True)
class Dpo:
    """Direct preference optimization."""

    beta: float
    label_smoothing: float = 0.0
    name = "dpo"
    needs = OfflineNeeds(reference=True, whole_groups=True)

    def weights(self, groups: Sequence[Group]) -> dict[SampleKey, float]:
        """Every pair of the batch weighs the same."""
        return equal_weights(groups)

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Returns the weighted loss of the pairs of one micro-batch."""
        rewards_S = self.beta * log_ratios(inputs)
        chosen_P, rejected_P = paired(rewards_S)
        margins_P = chosen_P - rejected_P
        right, wrong = 1 - self.label_smoothing, self.label_smoothing
        losses_P = -right * logsigmoid(margins_P) - wrong * logsigmoid(-margins_P)
        return pair_outputs(losses_P, rewards_S, inputs)
