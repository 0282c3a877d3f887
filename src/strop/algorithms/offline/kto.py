r"""KTO: single answers, desirable or not, valued against a reference point as people value gains and losses.

    L = lambda_D (1 - sigmoid( beta (r - z0) ))     where the answer is desirable
        lambda_U (1 - sigmoid( beta (z0 - r) ))     where it is not
    r = log pi(y | x) - log pi_ref(y | x)
    z0 = max(0, 1/m  sum_i  log pi(y_{i-1} | x_i) - log pi_ref(y_{i-1} | x_i))

Source: Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization", arXiv:2402.01306, equation 8
and the estimate of z0 below it: each prompt of the batch with the answer of another row of it. z0 bears no gradient.

Deviations: z0 is one number for the whole batch, fixed before its first micro-batch; the paper and TRL take one a
micro-batch. The mismatched answer is that of the row before, and of the last row for the first one, as in TRL; where a
prompt leaves too little room for it, its end is cut. A batch of one row, which only the end of the data can make, has
nothing to mismatch: z0 is 0 there, its lower bound. The mean is over the rows of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strop.algorithms.offline.method import OfflineNeeds, equal_weights
from strop.algorithms.offline.ratios import log_ratios, of_samples
from strop.metrics import Metrics, maximum, mean
from strop.protocols import LossInputs, LossOutputs
from strop.records import Group
from strop.records.packing import SampleKey


@dataclass(frozen=True, slots=True)
class Kto:
    """Kahneman-Tversky optimization."""

    beta: float
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0
    name = "kto"
    needs = OfflineNeeds(reference=True, reference_point=True)

    def weights(self, groups: Sequence[Group]) -> dict[SampleKey, float]:
        """Every answer of the batch weighs the same; what desirable ones weigh is part of the loss."""
        return equal_weights(groups)

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Returns the weighted loss of the answers of one micro-batch.

        `fields_N` must hold `labels`, 1 on the tokens of desirable answers and 0 on others, and `reference_point`.
        """
        ratios_S = log_ratios(inputs)
        is_desirable_S = of_samples(inputs.fields_N["labels"], inputs) > 0.5
        point_S = of_samples(inputs.fields_N["reference_point"], inputs)
        gains_S = torch.where(is_desirable_S, ratios_S - point_S, point_S - ratios_S)
        scale_S = torch.where(
            is_desirable_S,
            torch.full_like(ratios_S, self.desirable_weight),
            torch.full_like(ratios_S, self.undesirable_weight),
        )
        losses_S = scale_S * torch.sigmoid(-self.beta * gains_S)
        weights_S = of_samples(inputs.weights_N, inputs)
        metrics = _metrics(losses_S, self.beta * ratios_S, is_desirable_S, point_S)
        return LossOutputs((weights_S * losses_S).sum(), metrics)


def _metrics(losses_S: Tensor, rewards_S: Tensor, is_desirable_S: Tensor, point_S: Tensor) -> Metrics:
    rewards_S = rewards_S.detach()
    return {
        "offline/loss": mean(float(losses_S.detach().sum()), len(losses_S)),
        "offline/reference_point": maximum(float(point_S[0]), "nats"),
        "rewards/chosen": mean(float(rewards_S[is_desirable_S].sum()), int(is_desirable_S.sum())),
        "rewards/rejected": mean(float(rewards_S[~is_desirable_S].sum()), int((~is_desirable_S).sum())),
    }
