"""The step of every schedule, in two halves: collect groups, then update the policy.

    collect     prompts -> sample a group each -> reward it -> keep those worth training on
    update      score the rows where needed -> advantages -> pack -> attach old and reference log-probs where needed
                -> for each mini-batch: forward_backward, optimizer_step

The schedules (`sync.py`) call the two halves and publish the weights in between. Who does what is in `roles.py`; how
a group is sampled in `sampling.py`; what is scored, and how groups become micro-batches, in `passes.py`.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from strop.algorithms.mismatch import effective_shares
from strop.metrics import Metrics, merge
from strop.protocols import UpdateReport
from strop.records import Group, MicroBatchPlan, Prompt
from strop.trainers.passes import attach_old, plan_critic, plan_mini_batch, ready, score_rows
from strop.trainers.roles import Roles, StepSettings
from strop.trainers.sampling import judge_for_training, sample_for_training
from strop.trainers.updates import naming_prompts, skip_note, update_critic, update_metrics
from strop.training.balance import balance_metrics


@dataclass(frozen=True)
class Collected:
    """What one step collected."""

    kept: list[Group]
    """Groups to train on, at most `num_prompts`."""
    generated: list[Group]
    """All groups, those that the algorithm left out too."""
    num_rounds: int
    reward_seconds: float
    """Time after the last sample of a round was drawn, spent waiting for rewards."""
    data_ended: bool
    """Whether the data gave fewer prompts than the step asked for."""


@dataclass(frozen=True)
class PreparedUpdate:
    """A step's updates before the first of them: what is trained on, and how."""

    groups: list[Group]
    """The groups with their advantages."""
    parts: list[list[Group]]
    """The mini-batches."""
    plans: list[MicroBatchPlan]
    critic_plans: list[MicroBatchPlan]
    """The same mini-batches for the critic; none without one."""
    metrics: Metrics
    """What the passes before the advantages said."""

    @property
    def num_targets(self) -> int:
        """Predictions that bear loss in one epoch; 0 where there is nothing to learn."""
        return sum(plan.num_targets for plan in [*self.plans, *self.critic_plans])


@dataclass(frozen=True)
class Updated:
    """What one step's updates did."""

    groups: list[Group]
    """The groups with their advantages."""
    metrics: Metrics
    reports: list[UpdateReport]
    notes: list[str]
    """What a person should be told: skipped updates and their samples."""


# ------------------------------------------------------------------------------------------- collect


async def collect(roles: Roles, settings: StepSettings) -> Collected:
    """Samples and rewards until the step has its prompts, the data end, or the rounds are used up."""
    kept: list[Group] = []
    generated: list[Group] = []
    num_rounds, reward_seconds, data_ended = 0, 0.0, False
    while len(kept) < settings.num_prompts and num_rounds < settings.max_rounds and not data_ended:
        num_wanted = settings.num_prompts - len(kept)
        prompts = roles.prompts.take(num_wanted)
        data_ended = len(prompts) < num_wanted
        if not prompts:
            break
        groups, seconds = await _sample_and_reward(roles, settings, prompts)
        generated += groups
        kept += roles.algorithm.select(groups)
        num_rounds += 1
        reward_seconds += seconds
    return Collected(kept, generated, num_rounds, reward_seconds, data_ended)


async def _sample_and_reward(
    roles: Roles, settings: StepSettings, prompts: Sequence[Prompt]
) -> tuple[list[Group], float]:
    """Samples all groups at once and rewards each as soon as it is whole."""
    sampled_at = time.perf_counter()

    async def one(prompt: Prompt) -> Group:
        nonlocal sampled_at
        group = await sample_for_training(roles, settings, prompt)
        sampled_at = time.perf_counter()
        return await judge_for_training(roles, group)

    groups = await asyncio.gather(*(one(prompt) for prompt in prompts))
    return list(groups), time.perf_counter() - sampled_at


# ------------------------------------------------------------------------------------------- update


def prepare_update(roles: Roles, settings: StepSettings, groups: Sequence[Group]) -> PreparedUpdate:
    """Computes advantages, packs the mini-batches, and attaches reference and old log-probs where needed."""
    groups, metrics = score_rows(roles, settings, groups)
    groups = roles.algorithm.advantages(groups)
    parts = split_evenly(groups, settings.updates_per_batch)
    plans = attach_old(roles, settings, [plan_mini_batch(roles, settings, part) for part in parts])
    critic_plans = [plan_critic(roles, settings, part) for part in parts] if roles.critic is not None else []
    return PreparedUpdate(groups, parts, plans, critic_plans, metrics)


def update(roles: Roles, settings: StepSettings, prepared: PreparedUpdate) -> Updated:
    """Runs every mini-batch of every epoch, one optimizer update each."""
    parts, plans = prepared.parts, prepared.plans
    metrics: list[Metrics] = [prepared.metrics]
    reports: list[UpdateReport] = []
    notes: list[str] = []
    for _ in range(settings.epochs_per_batch):
        for index, (part, planned) in enumerate(zip(parts, plans, strict=True)):
            if roles.critic is not None:
                is_warming_up = roles.critic.is_warming_up
                learned, told = update_critic(roles.critic, prepared.critic_plans[index], part)
                metrics.append(learned)
                notes += told
                if is_warming_up:
                    continue
            plan, fixed = ready(roles, planned, is_first=not reports)
            metrics += [fixed, roles.policy.forward_backward(plan, roles.algorithm.loss)]
            with naming_prompts(part):
                reports.append(roles.policy.optimizer_step())
            notes += skip_note(reports[-1], part)
    merged = merge(metrics)
    roles.algorithm.observe(merged, sum(len(group.samples) for group in prepared.groups))
    measured = merged | effective_shares(merged) | update_metrics(reports, plans) | _balance(settings, plans)
    return Updated(prepared.groups, measured, reports, notes)


def _balance(settings: StepSettings, plans: Sequence[MicroBatchPlan]) -> Metrics:
    if settings.num_ranks == 1:
        return {}
    return merge(balance_metrics(plan, settings.num_ranks, settings.costs) for plan in plans)


def split_evenly(groups: Sequence[Group], num_parts: int) -> list[list[Group]]:
    """Cuts the groups into at most `num_parts` runs whose sizes differ by one at most; none is empty."""
    num_parts = min(num_parts, len(groups))
    bounds = [len(groups) * part // num_parts for part in range(num_parts + 1)] if num_parts else [0]
    return [list(groups[start:stop]) for start, stop in pairwise(bounds)]
