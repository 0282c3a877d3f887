r"""GRPO: Group Relative Policy Optimization (Shao et al. 2024, DeepSeekMath, arXiv:2402.03300).

For a prompt with samples i = 1..G and rewards r_i, each sampled token t of sample i has

    advantage   A_i  = (r_i - mean(r)) / (std(r) + 1e-6)                                 `group_advantages`
    ratio       w_it = exp(log p_new(t) - log p_old(t))
    token loss  l_it = -min(w_it A_i, clip(w_it, 1 - low, 1 + high) A_i) + beta KL_it     `clipped_loss`, `kl_estimate`
    loss             = 1/S sum_i 1/|o_i| sum_t l_it    over the S samples of a mini-batch `token_weights`

Deviations from the paper: the standard deviation divides by n - 1 (the paper does not say); beta is 0 by
default, as practice since has found the KL term dispensable for verifiable rewards; a group without signal
gives exactly 0. On the first update after sampling, p_old is p_new and the ratio is exactly 1.
"""

from collections.abc import Sequence

import torch

from strop.algorithms.advantages.group import group_advantages
from strop.algorithms.aggregation import token_weights
from strop.algorithms.kl import kl_estimate
from strop.algorithms.losses.clip import ClipBounds, clipped_loss
from strop.algorithms.truncation import shape_rewards
from strop.config.bundles import ResolvedAlgorithm
from strop.metrics import Metrics, mean
from strop.protocols import AlgorithmNeeds, LossInputs, LossOutputs
from strop.records import FinishState, Group, Sample


class Grpo:
    """GRPO, and whatever its settings make of it; implements `protocols.Algorithm`."""

    def __init__(self, settings: ResolvedAlgorithm) -> None:
        self.name: str = settings.name
        self.settings = settings
        self._bounds = ClipBounds(settings.clip_low, settings.clip_high)

    @property
    def needs(self) -> AlgorithmNeeds:
        """Entropy and reference log-probs where their coefficients are not 0; without both, w = 1 gives -A_i."""
        entropy, reference = self.settings.entropy_coefficient != 0, self.settings.kl_coefficient > 0
        return AlgorithmNeeds(
            entropy=entropy, reference_logprobs=reference, on_policy_gradient_known=not (entropy or reference)
        )

    def shape(self, group: Group) -> Group:
        """Puts on the rewards what truncation and length cost, as `truncated` says."""
        return shape_rewards(group, self.settings)

    def select(self, groups: Sequence[Group]) -> list[Group]:
        """Leaves out groups without signal where dynamic sampling is on."""
        return [group for group in groups if group.has_signal or not self.settings.drop_zero_signal]

    def advantages(self, groups: Sequence[Group]) -> list[Group]:
        """Puts each sample's group advantage on its sampled tokens."""
        return [self._with_advantages(group) for group in groups]

    def _with_advantages(self, group: Group) -> Group:
        rewards = [sample.reward for sample in group.samples]
        values = group_advantages(rewards, self.settings.advantage_std)
        pairs = zip(group.samples, values, strict=True)
        return group.with_samples([sample.with_token_advantage(value) for sample, value in pairs])

    def weights(self, groups: Sequence[Group]) -> dict[tuple[int, int], float]:
        """The aggregation weight of each token, by (group, sample); masked samples are in no denominator."""
        num_tokens = {
            (g, s): sample.num_sampled_tokens
            for g, group in enumerate(groups)
            for s, sample in enumerate(group.samples)
            if self._bears_loss(sample)
        }
        return token_weights(num_tokens, self.settings.aggregation, self.settings.constant_length)

    def _bears_loss(self, sample: Sample) -> bool:
        """Invalid samples never do; truncated ones do unless they are to be masked."""
        if sample.reward is None or sample.finish in (FinishState.ABORTED, FinishState.FAILED):
            return False
        return not (sample.is_truncated and self.settings.truncated == "mask")

    def has_gradient(self, sample: Sample) -> bool:
        """Without KL and entropy terms, a sample of advantage 0 moves nothing: its compute is saved."""
        if self.settings.kl_coefficient > 0 or self.settings.entropy_coefficient != 0:
            return True
        return any(row.advantages is not None and bool(row.advantages.any()) for row in sample.rows)

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Sums weight * (clipped loss + beta * KL - c * entropy) over the targets of a micro-batch."""
        settings = self.settings
        losses_N, metrics = clipped_loss(
            inputs.new_logprobs_N, inputs.old_logprobs_N, inputs.advantages_N, self._bounds
        )
        if settings.kl_coefficient > 0:
            reference_N = _required(inputs.reference_logprobs_N, "reference_logprobs_N", "kl_coefficient")
            kl_N = kl_estimate(inputs.new_logprobs_N, reference_N, settings.kl_estimator)
            losses_N = losses_N + settings.kl_coefficient * kl_N
            metrics["kl/reference"] = mean(float(kl_N.detach().sum()), len(kl_N), "nats")
        if settings.entropy_coefficient != 0:
            entropies_N = _required(inputs.entropies_N, "entropies_N", "entropy_coefficient")
            losses_N = losses_N - settings.entropy_coefficient * entropies_N
        loss = (inputs.weights_N * losses_N).sum()
        return LossOutputs(loss, metrics | _common_metrics(inputs))


def _required(values_N: torch.Tensor | None, name: str, setting: str) -> torch.Tensor:
    if values_N is None:
        raise ValueError(f"{name} must be given where {setting} is not 0, got None")
    return values_N


def _common_metrics(inputs: LossInputs) -> Metrics:
    """What any policy loss reports: entropy, and how far the sampler's log-probs are from the trainer's."""
    with torch.no_grad():
        count = len(inputs.new_logprobs_N)
        gap_N = inputs.old_logprobs_N - inputs.rollout_logprobs_N
        metrics = {"mismatch/logprob_difference": mean(float(gap_N.abs().sum()), count, "nats")}
        if inputs.entropies_N is not None:
            metrics["policy/entropy"] = mean(float(inputs.entropies_N.sum()), count, "nats")
        return metrics
