"""Passes of models over a step's batch, without gradient: only those that the algorithm needs.

before the advantages   `score_rows`       old and reference log-probs, collisions, a critic's values, on the rows
when a batch is cut     `plan_mini_batch`  the reference's log-probs, or its most likely tokens
before the first update `attach_old`       old log-probs, unless the only update is on-policy: then old is new
before every update     `ready`            current log-probs, and what the algorithm fixes over the whole mini-batch
"""

from collections.abc import Sequence

from strop.algorithms.value_loss import value_weights
from strop.metrics import Metrics
from strop.protocols import PlanScorer
from strop.records import Group, MicroBatchPlan
from strop.records.packing import SampleKey, with_target_fields
from strop.trainers.roles import Roles, StepSettings
from strop.training.balance import plan_over_ranks


def score_rows(roles: Roles, settings: StepSettings, groups: Sequence[Group]) -> tuple[list[Group], Metrics]:
    """Returns the groups with what their advantages are computed from, and what it says of the batch."""
    needs = roles.algorithm.needs
    groups = _taught(roles, settings, groups) if needs.teacher else list(groups)
    if not (needs.values or needs.token_rewards or needs.collisions):
        return groups, {}
    keys = [(g, s) for g, group in enumerate(groups) for s in range(len(group.samples))]
    plan = _plan(groups, keys, dict.fromkeys(keys, 1.0), settings)
    batches = plan.micro_batches
    if needs.token_rewards or needs.collisions:
        scores = roles.policy.score(plan, collisions=needs.collisions)
        groups = with_target_fields(groups, batches, [score.logprobs_N for score in scores], "old_logprobs")
        if needs.collisions:
            collisions = [score.collisions_N for score in scores if score.collisions_N is not None]
            groups = with_target_fields(groups, batches, collisions, "collisions")
    if needs.token_rewards:
        scores = _reference(roles).score(plan)
        groups = with_target_fields(groups, batches, [score.logprobs_N for score in scores], "reference_logprobs")
    if needs.values:
        if roles.critic is None:
            raise ValueError(f"{roles.algorithm.name} needs values, so a critic must be built, got none")
        groups = with_target_fields(groups, batches, roles.critic.values(plan), "values")
    return roles.algorithm.token_rewards(groups)


def _taught(roles: Roles, settings: StepSettings, groups: Sequence[Group]) -> list[Group]:
    """Returns the groups with what their teachers say of each sampled token."""
    if roles.teachers is None:
        raise ValueError(f"{roles.algorithm.name} needs a teacher, so one must be built, got none")
    top_k = roles.algorithm.needs.teacher_top_k
    taught = list(groups)
    for teacher, keys in roles.teachers.by_teacher(groups):
        plan = _plan(groups, keys, dict.fromkeys(keys, 1.0), settings)
        scores = teacher.score(plan, top_k=top_k)
        fields = {"teacher_logprobs": [score.logprobs_N for score in scores]}
        if top_k:
            fields["candidate_ids"] = [score.top_ids_NK for score in scores if score.top_ids_NK is not None]
            fields["teacher_top_logprobs"] = [
                score.top_logprobs_NK for score in scores if score.top_logprobs_NK is not None
            ]
        for name, values in fields.items():
            taught = with_target_fields(taught, plan.micro_batches, values, name)
    return taught


def plan_mini_batch(roles: Roles, settings: StepSettings, groups: Sequence[Group]) -> MicroBatchPlan:
    """Packs what bears loss; the aggregation weights are fixed here, before the first micro-batch."""
    weights = roles.algorithm.weights(groups)
    keys = [key for key in weights if roles.algorithm.has_gradient(groups[key[0]].samples[key[1]])]
    plan = _plan(groups, keys, weights, settings)
    needs = roles.algorithm.needs
    if not needs.reference_logprobs:
        return plan
    scores = _reference(roles).score(plan, top_k=needs.reference_top_k)
    plan = plan.with_field("reference_logprobs", [score.logprobs_N for score in scores])
    if needs.reference_top_k:
        ids = [score.top_ids_NK for score in scores if score.top_ids_NK is not None]
        logprobs = [score.top_logprobs_NK for score in scores if score.top_logprobs_NK is not None]
        plan = plan.with_field("candidate_ids", ids).with_field("reference_top_logprobs", logprobs)
    return plan


def plan_critic(roles: Roles, settings: StepSettings, groups: Sequence[Group]) -> MicroBatchPlan:
    """Packs every sample that bears loss for the critic, those without advantage too: its values are learned from."""
    weights = value_weights(groups, roles.algorithm.weights(groups))
    return _plan(groups, list(weights), weights, settings)


def attach_old(roles: Roles, settings: StepSettings, plans: list[MicroBatchPlan]) -> list[MicroBatchPlan]:
    """Scores the batch before its first update, unless the only update is on-policy or the rows bring it along."""
    needs = roles.algorithm.needs
    is_on_policy = len(plans) * settings.epochs_per_batch <= 1
    if (is_on_policy or needs.sampler_is_old) and not needs.old_logprobs:
        return plans
    return [_with_policy_logprobs(roles, plan, "old_logprobs") for plan in plans]


def ready(roles: Roles, plan: MicroBatchPlan, *, is_first: bool) -> tuple[MicroBatchPlan, Metrics]:
    """Returns the plan right before its update; in the first one of a step, the old policy is the current one."""
    if roles.algorithm.needs.current_logprobs:
        plan = _with_policy_logprobs(roles, plan, "old_logprobs" if is_first else "current_logprobs")
    return roles.algorithm.prepare(plan)


def _with_policy_logprobs(roles: Roles, plan: MicroBatchPlan, name: str) -> MicroBatchPlan:
    if all(name in batch.fields_N for batch in plan.micro_batches):
        return plan
    return plan.with_field(name, [score.logprobs_N for score in roles.policy.score(plan)])


def _plan(
    groups: Sequence[Group], keys: Sequence[SampleKey], weights: dict[SampleKey, float], settings: StepSettings
) -> MicroBatchPlan:
    return plan_over_ranks(
        groups,
        keys,
        weights,
        num_ranks=settings.num_ranks,
        costs=settings.costs,
        max_tokens=settings.micro_batch_tokens,
        share_prefix=settings.share_prefix,
    )


def _reference(roles: Roles) -> PlanScorer:
    if roles.reference is None:
        raise ValueError(f"{roles.algorithm.name} needs reference log-probs, so a reference must be built, got none")
    return roles.reference
