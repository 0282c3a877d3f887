"""The step of every schedule, in two halves: collect groups, then update the policy.

    collect     prompts -> sample a group each -> reward it -> keep those worth training on
    update      advantages -> pack -> attach old and reference log-probs where needed
                -> for each mini-batch: forward_backward, optimizer_step

The schedules (`sync.py`) call the two halves and publish the weights in between.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch

from strop.metrics import Metrics, maximum, mean, merge, total
from strop.protocols import (
    Algorithm,
    MicroBatchPlan,
    PlanScorer,
    PromptSource,
    Sampler,
    TrainEngine,
    UpdateReport,
)
from strop.records import Group, GroupRequest, Prompt, Sample, SamplingParams, StreamKey
from strop.records.packing import SampleKey
from strop.training.errors import TooManySkippedUpdates
from strop.training.plan import plan_micro_batches

Judge = Callable[[Group], Awaitable[Group]]
"""Returns the group with rewards on its samples."""


@dataclass(frozen=True)
class Roles:
    """Who does what in a step. Every role is a seam of `protocols.py`."""

    prompts: PromptSource
    sampler: Sampler
    judge: Judge
    algorithm: Algorithm
    policy: TrainEngine
    reference: PlanScorer | None = None


@dataclass(frozen=True)
class StepSettings:
    """How much of everything a step does."""

    num_prompts: int
    group_size: int
    sampling: SamplingParams
    seed: int
    max_rounds: int
    updates_per_batch: int
    epochs_per_batch: int
    micro_batch_tokens: int
    share_prefix: bool


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

    @property
    def num_targets(self) -> int:
        """Predictions that bear loss in one epoch; 0 where there is nothing to learn."""
        return sum(plan.num_targets for plan in self.plans)


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
        keys = stream_keys(prompt, settings.group_size, settings.seed, "train")
        group = await sample_group(roles.sampler, prompt, keys, settings.sampling)
        sampled_at = time.perf_counter()
        return await roles.judge(group)

    groups = await asyncio.gather(*(one(prompt) for prompt in prompts))
    return list(groups), time.perf_counter() - sampled_at


def stream_keys(prompt: Prompt, num_samples: int, seed: int, purpose: str) -> tuple[StreamKey, ...]:
    """Returns the random streams of a prompt's samples; training and evaluation never share one."""
    return tuple(StreamKey(seed, prompt.prompt_id, prompt.visit, index, purpose) for index in range(num_samples))


async def sample_group(sampler: Sampler, prompt: Prompt, keys: Sequence[StreamKey], sampling: SamplingParams) -> Group:
    """Samples one completion a stream and returns them as a group of single-row samples."""
    completions = await sampler.generate(GroupRequest(prompt.token_ids, tuple(keys), sampling))
    samples = (
        Sample(index, (completion.as_row(prompt.token_ids),), completion.finish, error=completion.error)
        for index, completion in enumerate(completions)
    )
    return Group(prompt, tuple(samples))


# ------------------------------------------------------------------------------------------- update


def prepare_update(roles: Roles, settings: StepSettings, groups: Sequence[Group]) -> PreparedUpdate:
    """Computes advantages, packs the mini-batches, and attaches reference and old log-probs where needed."""
    groups = roles.algorithm.advantages(groups)
    parts = split_evenly(groups, settings.updates_per_batch)
    plans = attach_old_logprobs(roles, settings, [plan_mini_batch(roles, settings, part) for part in parts])
    return PreparedUpdate(list(groups), parts, plans)


def update(roles: Roles, settings: StepSettings, prepared: PreparedUpdate) -> Updated:
    """Runs every mini-batch of every epoch, one optimizer update each."""
    parts, plans = prepared.parts, prepared.plans
    metrics: list[Metrics] = []
    reports: list[UpdateReport] = []
    notes: list[str] = []
    for _ in range(settings.epochs_per_batch):
        for part, plan in zip(parts, plans, strict=True):
            metrics.append(roles.policy.forward_backward(plan, roles.algorithm.loss))
            with naming_prompts(part):
                reports.append(roles.policy.optimizer_step())
            notes += skip_note(reports[-1], part)
    return Updated(prepared.groups, merge(metrics) | update_metrics(reports, plans), reports, notes)


def skip_note(report: UpdateReport, groups: Sequence[Group]) -> list[str]:
    """Says why an update was skipped, naming the samples that are suspect; nothing where it was applied."""
    if report.applied or not report.suspects:
        return []
    names = sample_names(report.suspects, groups)
    return [f"an update was skipped, the weights are unchanged: {report.reason}; suspect: {names}"]


@contextmanager
def naming_prompts(groups: Sequence[Group]) -> Iterator[None]:
    """Adds to an engine's error, which knows places in a mini-batch only, which prompts they are."""
    try:
        yield
    except TooManySkippedUpdates as error:
        error.add_note(f"Group by group these are: {sample_names(error.suspects, groups)}")
        raise


def sample_names(keys: Sequence[SampleKey], groups: Sequence[Group]) -> str:
    """Returns the samples by prompt, such as `train.jsonl:7 samples 0, 2`."""
    places: dict[str, list[str]] = defaultdict(list)
    for group, sample in keys:
        places[groups[group].prompt.prompt_id].append(str(sample))
    return "; ".join(f"{prompt} samples {', '.join(samples)}" for prompt, samples in places.items())


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


def split_evenly(groups: Sequence[Group], num_parts: int) -> list[list[Group]]:
    """Cuts the groups into at most `num_parts` runs whose sizes differ by one at most; none is empty."""
    num_parts = min(num_parts, len(groups))
    bounds = [len(groups) * part // num_parts for part in range(num_parts + 1)] if num_parts else [0]
    return [list(groups[start:stop]) for start, stop in pairwise(bounds)]


def update_metrics(reports: Sequence[UpdateReport], plans: Sequence[MicroBatchPlan]) -> Metrics:
    """Returns what the optimizer did, over all updates of the step."""
    applied = [report for report in reports if report.applied]
    metrics: Metrics = {
        "update/applied": total(len(applied)),
        "update/skipped": total(len(reports) - len(applied)),
        "tokens/trained": total(sum(plan.num_targets for plan in plans), "tokens"),
        "tokens/computed": total(sum(plan.num_tokens for plan in plans), "tokens"),
    }
    if applied:
        metrics["update/gradient_norm"] = mean(sum(report.gradient_norm for report in applied), len(applied))
        metrics["update/learning_rate"] = maximum(applied[-1].learning_rate)
    return metrics
