"""The pass over a batch of offline rows: from groups to a plan with everything that its loss reads.

    groups --weights, pack--> plan --reference--> reference log-probs --(kto)--> labels, reference point

The reference point of KTO is fixed here, over the whole batch, so that no cut of the batch changes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from strop.algorithms.offline.method import OfflineMethod
from strop.metrics import Metrics, mean, merge
from strop.protocols import LossInputs, PlanScorer
from strop.records import Group, MicroBatchPlan, PackedBatch, Row
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.plan import plan_micro_batches


@dataclass(frozen=True)
class OfflineRoles:
    """Who does what."""

    method: OfflineMethod
    policy: Fsdp2Engine
    reference: PlanScorer | None
    max_length: int
    """Most tokens of a sequence."""


def plan_batch(roles: OfflineRoles, groups: Sequence[Group]) -> MicroBatchPlan:
    """Packs a batch and attaches what the method's loss reads; all weights are fixed here."""
    needs = roles.method.needs
    weights = roles.method.weights(groups)
    plan = _plan(roles, groups, weights)
    if needs.reference:
        plan = plan.with_field("reference_logprobs", [score.logprobs_N for score in _reference(roles).score(plan)])
    if needs.reference_point:
        point = reference_point(roles, groups)
        points = [torch.full((batch.num_targets,), point) for batch in plan.micro_batches]
        labels = [_labels(groups, batch) for batch in plan.micro_batches]
        plan = plan.with_field("reference_point", points).with_field("labels", labels)
    return plan


def evaluate_batch(roles: OfflineRoles, groups: Sequence[Group]) -> Metrics:
    """Returns the method's metrics of a batch, without gradient."""
    plan = plan_batch(roles, groups)
    scores = roles.policy.score(plan)
    pairs = zip(plan.micro_batches, scores, strict=True)
    return merge(roles.method.loss(_inputs(batch, score.logprobs_N)).metrics for batch, score in pairs)


def with_margin(metrics: Metrics) -> Metrics:
    """Returns the metrics with the margin of answers that are no pairs: it is known of all of them together only.

    It has no value where all of them bear the same label.
    """
    chosen, rejected = metrics.get("rewards/chosen"), metrics.get("rewards/rejected")
    if "rewards/margin" in metrics or chosen is None or rejected is None:
        return metrics
    both = (chosen.result, rejected.result)
    margin = mean(0.0, 0.0) if both[0] is None or both[1] is None else mean(both[0] - both[1], 1)
    return metrics | {"rewards/margin": margin}


def reference_point(roles: OfflineRoles, groups: Sequence[Group]) -> float:
    """KTO's z0: the mean log-ratio of each prompt with the answer of the row before it, at least 0; 0 for one row."""
    if len(groups) < 2:
        return 0.0
    mismatched = [_mismatched(group, groups[index - 1], roles.max_length) for index, group in enumerate(groups)]
    plan = _plan(roles, mismatched, dict.fromkeys(((index, 0) for index in range(len(groups))), 1.0))
    policy, reference = roles.policy.score(plan), _reference(roles).score(plan)
    sums = [
        float((ours.logprobs_N.double() - theirs.logprobs_N.double()).sum())
        for ours, theirs in zip(policy, reference, strict=True)
    ]
    return max(0.0, sum(sums) / len(groups))


def _plan(roles: OfflineRoles, groups: Sequence[Group], weights: dict[tuple[int, int], float]) -> MicroBatchPlan:
    return plan_micro_batches(
        groups,
        list(weights),
        weights,
        max_tokens=roles.policy.config.micro_batch_tokens,
        share_prefix=roles.policy.shares_prefixes,
        whole_groups=roles.method.needs.whole_groups,
    )


def _mismatched(group: Group, other: Group, max_length: int) -> Group:
    """The prompt of one group with the answer of another, cut to what fits the model."""
    prompt, answer = group.samples[0].rows[0], other.samples[0].rows[0]
    num_prompt, first = int(prompt.loss_mask.argmax()), int(answer.loss_mask.argmax())
    token_ids = np.concatenate([prompt.token_ids[:num_prompt], answer.token_ids[first:]])[:max_length]
    loss_mask = np.concatenate([prompt.loss_mask[:num_prompt], answer.loss_mask[first:]])[:max_length]
    row = Row(
        token_ids=token_ids,
        loss_mask=loss_mask,
        rollout_logprobs=np.zeros(len(token_ids), np.float32),
        policy_versions=np.where(loss_mask, 0, -1),
        advantages=loss_mask.astype(np.float32),
    )
    return replace(group, samples=(replace(group.samples[0], rows=(row,)),))


def _labels(groups: Sequence[Group], batch: PackedBatch) -> torch.Tensor:
    """1 on the targets of desirable answers, 0 on others, [N]."""
    labels_S = torch.tensor([groups[g].samples[s].reward for g, s in batch.sample_keys], dtype=torch.float32)
    return labels_S[batch.sample_ids_N]


def _inputs(batch: PackedBatch, logprobs_N: torch.Tensor) -> LossInputs:
    fields = batch.fields_N
    return LossInputs(
        new_logprobs_N=logprobs_N,
        old_logprobs_N=logprobs_N,
        advantages_N=fields["advantages"],
        weights_N=fields["weights"],
        sample_ids_N=batch.sample_ids_N,
        num_samples=batch.num_samples,
        rollout_logprobs_N=fields["rollout_logprobs"],
        reference_logprobs_N=fields.get("reference_logprobs"),
        fields_N=fields,
    )


def _reference(roles: OfflineRoles) -> PlanScorer:
    if roles.reference is None:
        raise ValueError(f"{roles.method.name} needs reference log-probs, so a reference must be built, got none")
    return roles.reference
