r"""Supervised fine-tuning: maximum likelihood of the trained tokens.

    L = - 1/M  sum over the M trained tokens t of the batch of  log pi(t | what stands before it)

Source: the usual one; Ouyang et al. 2022, arXiv:2203.02155, section 3.5, call it SFT.

Deviations: the mean is over all trained tokens of the whole batch, fixed before its first micro-batch, so that no cut
of the batch changes it. TRL averages over the tokens of a batch alike (`num_items_in_batch`); a mean of means over
conversations, as older trainers take, would give short answers more weight. TRL trains every token of a conversation
by default (`assistant_only_loss=False`); here `offline.train_on` is `assistant`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from strop.algorithms.offline.method import OfflineNeeds
from strop.metrics import mean
from strop.protocols import LossInputs, LossOutputs
from strop.records import Group
from strop.records.packing import SampleKey


@dataclass(frozen=True, slots=True)
class Sft:
    """Negative log-likelihood, the mean over tokens."""

    name = "sft"
    needs = OfflineNeeds(known_gradient=True)

    def weights(self, groups: Sequence[Group]) -> dict[SampleKey, float]:
        """Every trained token of the batch weighs the same."""
        num_tokens = sum(sample.num_sampled_tokens for group in groups for sample in group.samples)
        return {(g, s): 1 / num_tokens for g, group in enumerate(groups) for s in range(len(group.samples))}

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Returns minus the weighted sum of the log-probs."""
        loss = -(inputs.weights_N * inputs.new_logprobs_N).sum()
        total = -float(inputs.new_logprobs_N.detach().sum())
        return LossOutputs(loss, {"offline/loss": mean(total, len(inputs.new_logprobs_N), "nats")})
