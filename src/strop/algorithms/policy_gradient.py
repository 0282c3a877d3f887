"""The policy-gradient algorithm: an advantage estimator, a policy loss and the terms around them, under one roof.

    loss = sum_t weight_t (correction_t l_t + beta KL_t - c H_t)

with the aggregation weight of each token (`aggregation.py`), its policy loss (`losses/`), the factor for the mismatch
between sampler and trainer (`corrections.py`), the KL to the reference (`kl.py`) and the entropy. Every named algorithm
is this one with the parts of its paper: `config/bundles/` has a file a name, with its settings and formulas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strop.algorithms.advantages.samples import bears_loss
from strop.algorithms.advantages.table import AdvantageEstimator, advantage_estimator
from strop.algorithms.aggregation import token_weights
from strop.algorithms.corrections import correction_weights, is_active, normalised
from strop.algorithms.kl import adapted_coefficient, full_kl, kl_estimate
from strop.algorithms.losses.kernel import PolicyLoss, Terms, ratio_metrics
from strop.algorithms.losses.table import COVARIANCE_LOSSES, KNOWN_GRADIENT_LOSSES, READS_ALL_SAMPLES, policy_loss
from strop.algorithms.mismatch import mismatch_metrics
from strop.algorithms.selection import select_samples
from strop.algorithms.shaping import shape_rewards
from strop.config.bundles import ResolvedAlgorithm
from strop.metrics import Metrics, mean
from strop.protocols import AlgorithmNeeds, LossInputs, LossOutputs
from strop.records import Group, MicroBatchPlan, Row, Sample


class PolicyGradient:
    """Any named algorithm; implements `protocols.Algorithm`."""

    def __init__(
        self,
        settings: ResolvedAlgorithm,
        estimator: AdvantageEstimator | None = None,
        loss: PolicyLoss | None = None,
    ) -> None:
        """Takes the parts that the settings name, or functions of the user's in their place."""
        self.name: str = settings.name
        self.settings = settings
        self.kl_coefficient = settings.kl_coefficient
        """The weight of the KL term now; it moves where `kl_target` is set."""
        self._estimator = estimator or advantage_estimator(settings.advantage)
        self._policy_loss = loss or policy_loss(settings.loss)

    # ------------------------------------------------------------------------------------------- what it needs

    @property
    def _has_kl_loss(self) -> bool:
        return self.settings.kl_coefficient > 0 and self.settings.kl_placement == "loss"

    @property
    def _has_kl_reward(self) -> bool:
        return self.settings.kl_coefficient > 0 and self.settings.kl_placement == "reward"

    @property
    def needs(self) -> AlgorithmNeeds:
        """Only what the chosen parts read."""
        settings = self.settings
        entropy, is_corrected = settings.entropy_coefficient != 0, is_active(settings.correction)
        is_full = self._has_kl_loss and settings.kl_estimator == "full"
        is_plain = settings.loss in KNOWN_GRADIENT_LOSSES and settings.correction.policies == 3
        return AlgorithmNeeds(
            entropy=entropy,
            candidates=is_full,
            old_logprobs=is_corrected and settings.correction.normalise,
            sampler_is_old=settings.correction.policies == 2,
            current_logprobs=settings.loss in COVARIANCE_LOSSES,
            reference_logprobs=self._has_kl_loss,
            reference_top_k=settings.kl_top_k if is_full else 0,
            values=settings.advantage == "gae",
            token_rewards=self._has_kl_reward,
            collisions=settings.advantage == "optimal_token_baseline",
            greedy_baseline=settings.advantage == "remax",
            on_policy_gradient_known=is_plain and not (entropy or is_corrected or self._has_kl_loss),
        )

    # ------------------------------------------------------------------------------------------- groups

    def shape(self, group: Group) -> Group:
        """Puts on the rewards what truncation and length cost, as `truncated` says."""
        return shape_rewards(group, self.settings)

    def select(self, groups: Sequence[Group]) -> list[Group]:
        """Leaves out groups without signal where dynamic sampling is on, and samples where only some are kept."""
        kept = [group for group in groups if group.has_signal or not self.settings.drop_zero_signal]
        return [select_samples(group, self.settings) for group in kept]

    def token_rewards(self, groups: Sequence[Group]) -> tuple[list[Group], Metrics]:
        """Takes the KL to the reference off each token's reward where it is placed there."""
        if not self._has_kl_reward:
            return list(groups), {}
        penalised = [
            group.with_samples([self._with_kl_rewards(sample) for sample in group.samples]) for group in groups
        ]
        rows = [row for group in penalised for sample in group.samples for row in sample.rows]
        total = -sum(float(row.fields["token_rewards"].sum()) for row in rows) / self.kl_coefficient
        return penalised, {"kl/reference": mean(total, sum(row.num_sampled_tokens for row in rows), "nats")}

    def _with_kl_rewards(self, sample: Sample) -> Sample:
        return replace(sample, rows=tuple(self._with_kl_reward(row) for row in sample.rows))

    def _with_kl_reward(self, row: Row) -> Row:
        if not row.num_sampled_tokens:
            return row.with_fields(token_rewards=np.zeros(row.num_tokens, np.float32))
        old_T, reference_T = (torch.from_numpy(row.fields[name]) for name in ("old_logprobs", "reference_logprobs"))
        kl_T = kl_estimate(old_T, reference_T, self.settings.kl_estimator).numpy()
        return row.with_fields(token_rewards=np.where(row.loss_mask, -self.kl_coefficient * kl_T, 0.0))

    def advantages(self, groups: Sequence[Group]) -> list[Group]:
        """Compares the samples as the estimator does."""
        return self._estimator(groups, self.settings)

    def weights(self, groups: Sequence[Group]) -> dict[tuple[int, int], float]:
        """The aggregation weight of each token, by (group, sample); masked samples are in no denominator."""
        num_tokens = {
            (g, s): sample.num_sampled_tokens
            for g, group in enumerate(groups)
            for s, sample in enumerate(group.samples)
            if bears_loss(sample, self.settings)
        }
        return token_weights(num_tokens, self.settings.aggregation, self.settings.constant_length)

    def has_gradient(self, sample: Sample) -> bool:
        """Without KL and entropy terms, a sample of advantage 0 moves nothing in most losses: its compute is saved.

        Nobody knows what a loss of the user's makes of it.
        """
        loss = self.settings.loss
        if self._has_kl_loss or self.settings.entropy_coefficient != 0 or loss in READS_ALL_SAMPLES or ":" in loss:
            return True
        return any(row.advantages is not None and bool(row.advantages.any()) for row in sample.rows)

    # ------------------------------------------------------------------------------------------- loss

    def prepare(self, plan: MicroBatchPlan) -> tuple[MicroBatchPlan, Metrics]:
        """Chooses the tokens of a covariance loss and normalises corrections, over the whole mini-batch."""
        if self.settings.loss in COVARIANCE_LOSSES:
            from strop.algorithms.losses.covariance import choose_tokens

            plan = choose_tokens(plan, self.settings)
        if is_active(self.settings.correction) and self.settings.correction.normalise:
            plan = self._with_normalised_corrections(plan)
        return plan, {}

    def _with_normalised_corrections(self, plan: MicroBatchPlan) -> MicroBatchPlan:
        found = [
            correction_weights(
                batch.fields_N["old_logprobs"],
                batch.fields_N["rollout_logprobs"],
                batch.sample_ids_N,
                batch.num_samples,
                self.settings.correction,
            )
            for batch in plan.micro_batches
        ]
        return plan.with_field("correction_weights", normalised(found))

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Sums weight * (correction * policy loss + beta * KL - c * entropy) over the targets of a micro-batch."""
        is_two_policy = self.settings.correction.policies == 2
        terms = Terms(inputs, inputs.rollout_logprobs_N if is_two_policy else inputs.old_logprobs_N)
        found = self._policy_loss(terms, self.settings)
        losses_N, metrics = found.losses_N, ratio_metrics(terms, found) | _common_metrics(inputs)
        if is_active(self.settings.correction):
            factors_N = self._corrections(inputs)
            losses_N = losses_N * factors_N
            metrics["mismatch/weight"] = mean(float(factors_N.sum()), len(factors_N))
            metrics["mismatch/rejected_share"] = mean(float((factors_N == 0).sum()), len(factors_N))
        if self._has_kl_loss:
            kl_N = self._kl(inputs)
            losses_N = losses_N + self.kl_coefficient * kl_N
            metrics["kl/reference"] = mean(float(kl_N.detach().sum()), len(kl_N), "nats")
        if self.settings.entropy_coefficient != 0:
            losses_N = losses_N - self.settings.entropy_coefficient * _required(inputs.entropies_N, "entropies_N")
        return LossOutputs((inputs.weights_N * losses_N).sum(), metrics)

    def _corrections(self, inputs: LossInputs) -> Tensor:
        prepared_N = inputs.fields_N.get("correction_weights")
        if prepared_N is not None:
            return prepared_N
        return correction_weights(
            inputs.old_logprobs_N,
            inputs.rollout_logprobs_N,
            inputs.sample_ids_N,
            inputs.num_samples,
            self.settings.correction,
        )

    def _kl(self, inputs: LossInputs) -> Tensor:
        if self.settings.kl_estimator == "full":
            candidates_NK = _required(inputs.candidate_logprobs_NK, "candidate_logprobs_NK")
            return full_kl(candidates_NK, inputs.fields_N["reference_top_logprobs"])
        reference_N = _required(inputs.reference_logprobs_N, "reference_logprobs_N")
        return kl_estimate(inputs.new_logprobs_N, reference_N, self.settings.kl_estimator)

    # ------------------------------------------------------------------------------------------- what adapts

    def observe(self, metrics: Metrics, num_samples: int) -> None:
        """Moves the KL coefficient towards its target, where there is one."""
        target, measured = self.settings.kl_target, metrics.get("kl/reference")
        if target is not None and measured is not None and measured.result is not None:
            self.kl_coefficient = adapted_coefficient(
                self.kl_coefficient, measured.result, target, num_samples, self.settings.kl_horizon
            )

    def state(self) -> dict[str, Any]:
        """The KL coefficient."""
        return {"kl_coefficient": self.kl_coefficient}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on with the KL coefficient of a checkpoint."""
        self.kl_coefficient = float(state["kl_coefficient"])


def _common_metrics(inputs: LossInputs) -> Metrics:
    """What any policy loss reports: how far the sampler's log-probs are from the trainer's, and the entropy."""
    metrics = mismatch_metrics(
        inputs.old_logprobs_N, inputs.rollout_logprobs_N, inputs.sample_ids_N, inputs.num_samples
    )
    if inputs.entropies_N is not None:
        entropies_N = inputs.entropies_N.detach()
        metrics["policy/entropy"] = mean(float(entropies_N.sum()), len(entropies_N), "nats")
    return metrics


def _required(values: Tensor | None, name: str) -> Tensor:
    if values is None:
        raise ValueError(f"{name} must be given to this loss, got None")
    return values
