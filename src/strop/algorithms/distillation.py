r"""On-policy distillation: the policy learns from a teacher on what it samples itself.

Agarwal et al. 2024, arXiv:2306.13649 (on-policy data); Gu et al. 2024, arXiv:2306.08543 (reverse KL). With the
teacher's distribution q and the policy's p at the place of a sampled token x, both at the temperature of sampling:

    forward_kl  D = sum_{k in top-K of q} q_k (log q_k - log p_k)  +  q_rest (log q_rest - log p_rest)
    k1          D = log p(x) - log q(x)
    k2          D = (log q(x) - log p(x))^2 / 2
    k3          D = q(x)/p(x) - 1 - log(q(x)/p(x))

The rest of the vocabulary is one bucket (`tail`); so forward_kl is never negative, at most the whole KL(q || p), and
equal to it with K = V. Without the bucket the sum may be negative and is cut at 0, where it has no gradient.

    placement loss     sum_t weight_t coefficient D_t                  gradient straight through D
    placement reward   advantage_t -= coefficient D_t, by the sampler's log-probs

As a loss k1 has a gradient of expectation 0 and is refused; as a reward it has the gradient of the reverse KL at each
place, without credit for what follows (discount 0), as in Lu et al. 2025, "On-Policy Distillation". forward_kl says the
same whatever was sampled, so as the reward of a token it has a gradient of expectation 0 and is refused.

Deviations: verl (0.7) has no tail bucket; TRL's GKD takes the whole vocabulary and a temperature of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strop.algorithms.aggregation import token_weights
from strop.algorithms.kl import kl_estimate, log_tail
from strop.algorithms.policy_gradient import PolicyGradient
from strop.config.distillation import DistillationConfig
from strop.metrics import Metrics, mean
from strop.protocols import AlgorithmNeeds, LossInputs, LossOutputs
from strop.records import FinishState, Group, MicroBatchPlan, Row, Sample

IDS, TOP, SAMPLED = "candidate_ids", "teacher_top_logprobs", "teacher_logprobs"
"""The fields of a row that a teacher gives: its most likely ids and their log-probs, and that of the sampled token."""


class Distillation:
    """Learning from teachers, alone or beside the rewards of an algorithm; implements `protocols.Algorithm`."""

    def __init__(self, inner: PolicyGradient, settings: DistillationConfig) -> None:
        self.name = inner.name
        self.inner = inner
        self.settings = settings

    @property
    def _is_alone(self) -> bool:
        return not self.settings.with_rewards

    @property
    def _is_loss(self) -> bool:
        return self.settings.placement == "loss"

    @property
    def needs(self) -> AlgorithmNeeds:
        """The inner algorithm's needs where it learns too, candidates for the forward KL, and a teacher."""
        is_forward = self.settings.divergence == "forward_kl"
        top_k = self.settings.top_k if is_forward else 0
        base = self.inner.needs if not (self._is_alone and self._is_loss) else AlgorithmNeeds()
        if self._is_alone:
            base = replace(base, values=False, greedy_baseline=False, collisions=False, token_rewards=False)
        is_known = base.on_policy_gradient_known and not self._is_loss
        return replace(
            base, teacher=True, teacher_top_k=top_k, candidates=is_forward, on_policy_gradient_known=is_known
        )

    def shape(self, group: Group) -> Group:
        """As the inner algorithm does."""
        return self.inner.shape(group)

    def select(self, groups: Sequence[Group]) -> list[Group]:
        """As the inner algorithm does where rewards are learned from; else every group is worth training on."""
        return list(groups) if self._is_alone else self.inner.select(groups)

    def token_rewards(self, groups: Sequence[Group]) -> tuple[list[Group], Metrics]:
        """As the inner algorithm does."""
        return self.inner.token_rewards(groups)

    def advantages(self, groups: Sequence[Group]) -> list[Group]:
        """The inner algorithm's where rewards are learned from, less each token's divergence where it is a reward."""
        if self._is_alone:
            found = [group.with_samples([s.with_token_advantage(0.0) for s in group.samples]) for group in groups]
        else:
            found = self.inner.advantages(groups)
        if self._is_loss:
            return found
        return [group.with_samples([self._with_divergence(sample) for sample in group.samples]) for group in found]

    def _with_divergence(self, sample: Sample) -> Sample:
        return sample.with_advantages([self._penalised(row) for row in sample.rows])

    def _penalised(self, row: Row) -> np.ndarray[Any, np.dtype[np.float64]]:
        own = np.zeros(row.num_tokens) if row.advantages is None else row.advantages.astype(np.float64)
        if SAMPLED not in row.fields:
            return own
        policy_T, teacher_T = torch.from_numpy(row.rollout_logprobs), torch.from_numpy(row.fields[SAMPLED])
        divergence_T = sampled_divergence(policy_T, teacher_T, self.settings).double().numpy()
        return np.where(row.loss_mask, own - self.settings.coefficient * divergence_T, 0.0)

    def weights(self, groups: Sequence[Group]) -> dict[tuple[int, int], float]:
        """The inner algorithm's aggregation; alone, over all samples that are whole, whatever they earned."""
        if not self._is_alone:
            return self.inner.weights(groups)
        num_tokens = {
            (g, s): sample.num_sampled_tokens
            for g, group in enumerate(groups)
            for s, sample in enumerate(group.samples)
            if sample.finish not in (FinishState.ABORTED, FinishState.FAILED)
        }
        settings = self.inner.settings
        return token_weights(num_tokens, settings.aggregation, settings.constant_length)

    def has_gradient(self, sample: Sample) -> bool:
        """A divergence nearly always has one."""
        return True

    def prepare(self, plan: MicroBatchPlan) -> tuple[MicroBatchPlan, Metrics]:
        """As the inner algorithm does where its loss is there."""
        return (plan, {}) if self._is_alone and self._is_loss else self.inner.prepare(plan)

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """The inner algorithm's loss where there is anything for it, and the divergence where it is a loss."""
        zero = (inputs.new_logprobs_N.sum() * 0.0).to(inputs.weights_N.dtype)
        outputs = LossOutputs(zero) if self._is_alone and self._is_loss else self.inner.loss(inputs)
        divergence_N = self._divergence(inputs)
        with torch.no_grad():
            measured = {"distillation/divergence": mean(float(divergence_N.sum()), len(divergence_N), "nats")}
            if TOP in inputs.fields_N:
                mass = inputs.fields_N[TOP].exp().sum()
                measured["distillation/teacher_mass"] = mean(float(mass), len(divergence_N))
        loss = outputs.loss
        if self._is_loss:
            loss = loss + self.settings.coefficient * (inputs.weights_N * divergence_N).sum()
        return LossOutputs(loss, outputs.metrics | measured)

    def _divergence(self, inputs: LossInputs) -> Tensor:
        if self.settings.divergence != "forward_kl":
            return sampled_divergence(inputs.new_logprobs_N, inputs.fields_N[SAMPLED], self.settings)
        if inputs.candidate_logprobs_NK is None:
            raise ValueError("forward_kl must be given candidate_logprobs_NK, got None")
        return forward_kl(inputs.candidate_logprobs_NK, inputs.fields_N[TOP], self.settings)

    def observe(self, metrics: Metrics, num_samples: int) -> None:
        """As the inner algorithm does."""
        self.inner.observe(metrics, num_samples)

    def state(self) -> dict[str, Any]:
        """The inner algorithm's."""
        return self.inner.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """As the inner algorithm does."""
        self.inner.restore(state)


def forward_kl(policy_logprobs_NK: Tensor, teacher_logprobs_NK: Tensor, settings: DistillationConfig) -> Tensor:
    """Returns KL(teacher || policy) over the teacher's K tokens, and one bucket for all others where asked, [N].

    Args:
        policy_logprobs_NK: of the policy at the teacher's ids, with gradient; normalised over the whole vocabulary.
        teacher_logprobs_NK: of the teacher at the same ids.
        settings: `tail`, `min_logprob` and `max_divergence`.
    """
    teacher_NK = _bounded(teacher_logprobs_NK, settings)
    terms_NK = teacher_NK.exp() * (teacher_NK - _bounded(policy_logprobs_NK, settings))
    divergence_N = terms_NK.sum(dim=1)
    if settings.tail:
        teacher_N, policy_N = log_tail(teacher_logprobs_NK, _LEAST_REST), log_tail(policy_logprobs_NK, _LEAST_REST)
        divergence_N = divergence_N + teacher_N.exp() * (_bounded(teacher_N, settings) - _bounded(policy_N, settings))
    return divergence_N.clamp(min=0.0, max=settings.max_divergence)


def sampled_divergence(policy_N: Tensor, teacher_N: Tensor, settings: DistillationConfig) -> Tensor:
    """Returns the estimate of KL(policy || teacher) at each sampled token, [N], by k1, k2 or k3."""
    if settings.divergence == "forward_kl":
        raise ValueError("forward_kl needs distributions, got sampled tokens: use forward_kl")
    estimate_N = kl_estimate(_bounded(policy_N, settings), _bounded(teacher_N, settings), settings.divergence)
    if settings.max_divergence is None:
        return estimate_N
    return estimate_N.clamp(max=settings.max_divergence)


_LEAST_REST = 1e-6
"""What is left of the vocabulary counts as at least this: in float32 less is rounding, which the gradient by the
policy's rest would multiply."""


def _bounded(logprobs: Tensor, settings: DistillationConfig) -> Tensor:
    return logprobs if settings.min_logprob is None else logprobs.clamp(min=settings.min_logprob)
