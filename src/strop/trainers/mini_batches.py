"""From groups with advantages to plans of micro-batches, with every log-prob that the loss will read.

groups --split_evenly--> mini-batches --plan_mini_batch--> plans --attach_old_logprobs--> plans to update from
"""

from collections.abc import Sequence
from itertools import pairwise

import torch

from strop.protocols import MicroBatchPlan
from strop.records import Group
from strop.trainers.roles import Roles, StepSettings
from strop.training.plan import plan_micro_batches


def split_evenly(groups: Sequence[Group], num_parts: int) -> list[list[Group]]:
    """Cuts the groups into at most `num_parts` runs whose sizes differ by one at most; none is empty."""
    num_parts = min(num_parts, len(groups))
    bounds = [len(groups) * part // num_parts for part in range(num_parts + 1)] if num_parts else [0]
    return [list(groups[start:stop]) for start, stop in pairwise(bounds)]


def plan_mini_batch(roles: Roles, settings: StepSettings, groups: Sequence[Group]) -> MicroBatchPlan:
    """Packs what bears loss; the aggregation weights are fixed here, before the first micro-batch."""
    weights = roles.algorithm.weights(groups)
    keys = [key for key in weights if roles.algorithm.has_gradient(groups[key[0]].samples[key[1]])]
    plan = plan_micro_batches(
        groups, keys, weights, max_tokens=settings.micro_batch_tokens, share_prefix=settings.share_prefix
    )
    if not roles.algorithm.needs.reference_logprobs:
        return plan
    if roles.reference is None:
        raise ValueError(f"{roles.algorithm.name} needs reference log-probs, so a reference must be built, got none")
    return attach(plan, "reference_logprobs", roles.reference.score(plan))


def attach_old_logprobs(roles: Roles, settings: StepSettings, plans: list[MicroBatchPlan]) -> list[MicroBatchPlan]:
    """Scores the batch before its first update, unless the only update is on-policy: then old is new."""
    is_on_policy = len(plans) * settings.epochs_per_batch <= 1
    if is_on_policy and not roles.algorithm.needs.old_logprobs:
        return plans
    return [attach(plan, "old_logprobs", roles.policy.score(plan)) for plan in plans]


def attach(plan: MicroBatchPlan, name: str, values: Sequence[torch.Tensor]) -> MicroBatchPlan:
    """Returns the plan with one more target-aligned field on every micro-batch."""
    pairs = zip(plan.micro_batches, values, strict=True)
    return MicroBatchPlan(tuple(batch.with_fields(**{name: part}) for batch, part in pairs))
