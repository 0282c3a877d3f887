"""The update half of a step on a tiny model: roles that sample nothing, and groups as a sampler leaves them."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from strop.algorithms.build import build_algorithm
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.config.critic import CriticConfig
from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.metrics import values
from strop.records import Group, MicroBatchPlan, Row, Sample, SamplingParams
from strop.records.packing import with_target_fields
from strop.trainers.passes import ready
from strop.trainers.roles import Roles, StepSettings
from strop.trainers.step import PreparedUpdate, prepare_update
from strop.training.costs import ComputeCosts
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.reference import FrozenReference
from support.critic import critic_gradients, set_head
from support.tiny import tiny_groups, tiny_model
from support.training import gradients, tiny_engine, tiny_plan

AT_ONCE = 1_000_000
"""A budget of tokens for the whole batch."""


def resolved(max_new_tokens: int = 8, **algorithm: Any) -> ResolvedAlgorithm:
    """The settings of a bundle with keys of the algorithm section over them."""
    return resolve_algorithm(AlgorithmConfig.model_validate(algorithm), max_new_tokens)


def update_roles(
    settings: ResolvedAlgorithm,
    model: PreTrainedModel | None = None,
    *,
    temperature: float = 1.0,
    head: bool = True,
    **training: Any,
) -> Roles:
    """Returns the roles of the update half: a policy, and the reference and the critic that the algorithm needs.

    The reference is not the policy, and the critic says something (0 without `head`), so that it matters.
    """
    hf_model = tiny_model("llama") if model is None else model
    section = TrainingConfig(**{"learning_rate": 1e-2, "logprob_chunk_tokens": 64, **training})
    algorithm, device = build_algorithm(settings), CpuDevice()
    reference = critic = None
    if algorithm.needs.reference:
        reference = FrozenReference(_other(hf_model), section, temperature=temperature, device=device)
    if algorithm.needs.values:
        critic = Fsdp2Critic(_other(hf_model), CriticConfig(learning_rate=1e-2), section, device=device)
        if head:
            set_head(critic)
    policy = Fsdp2Engine(hf_model, section, temperature=temperature, device=device, needs=algorithm.needs)
    return Roles(
        prompts=None, sampler=None, judge=None, algorithm=algorithm, policy=policy, reference=reference, critic=critic
    )


def _other(hf_model: PreTrainedModel) -> PreTrainedModel:
    other = copy.deepcopy(hf_model)
    jolt(other, seed=7, scale=0.01)
    return other


@torch.no_grad()
def jolt(module: nn.Module, *, seed: int = 3, scale: float = 0.02) -> None:
    """Moves every weight a little, the same way every time: the policy is not the one any more that sampled."""
    generator = torch.Generator().manual_seed(seed)
    for _, weight in sorted(module.named_parameters()):
        weight.add_(torch.randn(weight.shape, generator=generator), alpha=scale)


def step_settings(
    max_tokens: int = AT_ONCE, *, updates: int = 1, epochs: int = 1, share_prefix: bool = True, num_ranks: int = 1
) -> StepSettings:
    """How a step updates; what it samples is of no interest here."""
    return StepSettings(
        num_prompts=1,
        group_size=1,
        sampling=SamplingParams(max_new_tokens=1),
        seed=0,
        max_rounds=1,
        updates_per_batch=updates,
        epochs_per_batch=epochs,
        micro_batch_tokens=max_tokens,
        share_prefix=share_prefix,
        num_ranks=num_ranks,
        costs=ComputeCosts(pair=0.01, target=0.1),
    )


def sampled_groups(seed: int = 0, num_groups: int = 3, group_size: int = 4, **lengths: Any) -> list[Group]:
    """Returns groups with rewards of many values, a greedy baseline each, and log-probs near those of the tiny llama.

    One sample of the first group has two rows. The sampler's log-probs are the model's and a tenth of noise.
    """
    rng = np.random.default_rng(seed)
    groups = tiny_groups(num_groups, group_size, seed=seed, **lengths)
    plan = tiny_plan(groups)
    scores = [score.logprobs_N for score in tiny_engine().score(plan)]
    groups = with_target_fields(groups, plan.micro_batches, scores, "old_logprobs")
    groups = [_judged(group, rng) for group in groups]
    first = groups[0]
    one, two, *others = first.samples
    forked = replace(one, rows=one.rows + two.rows)
    return [first.with_samples([forked, two, *others]), *groups[1:]]


def _judged(group: Group, rng: np.random.Generator) -> Group:
    samples = [
        replace(sample, rows=tuple(_sampled(row, rng) for row in sample.rows), reward=float(rng.normal()))
        for sample in group.samples
    ]
    return replace(group.with_samples(samples), baseline=replace(samples[0], reward=0.1))


def _sampled(row: Row, rng: np.random.Generator) -> Row:
    noise = 0.1 * rng.normal(size=row.num_tokens)
    rollout_logprobs = np.where(row.loss_mask, row.fields["old_logprobs"] + noise, 0.0).astype(np.float32)
    return replace(row, rollout_logprobs=rollout_logprobs, advantages=None, fields={})


def with_rewards(group: Group, rewards: Sequence[float | None]) -> Group:
    """The group with other rewards."""
    pairs = zip(group.samples, rewards, strict=True)
    return group.with_samples([replace(sample, reward=reward, reward_parts={}) for sample, reward in pairs])


def without_tokens(sample: Sample) -> Sample:
    """The sample as if nothing had been sampled: its rows end with the prompt."""
    return replace(sample, rows=tuple(shortened(row, 0) for row in sample.rows))


def shortened(row: Row, num_sampled: int) -> Row:
    """The row with only its first sampled tokens."""
    stop = int((~row.loss_mask).sum()) + num_sampled
    names = ("token_ids", "loss_mask", "rollout_logprobs", "policy_versions")
    return replace(row, **{name: getattr(row, name)[:stop] for name in names})


@dataclass(frozen=True)
class Measured:
    """One mini-batch's loss and gradients."""

    metrics: dict[str, float | None]
    gradients: dict[str, Tensor]
    critic_metrics: dict[str, float | None]
    critic_gradients: dict[str, Tensor]
    num_micro_batches: int

    @property
    def all_gradients(self) -> dict[str, Tensor]:
        """Those of the policy and of the critic."""
        return self.gradients | {f"critic {name}": gradient for name, gradient in self.critic_gradients.items()}


def measured(
    settings: ResolvedAlgorithm,
    groups: Sequence[Group],
    max_tokens: int = AT_ONCE,
    *,
    share_prefix: bool = True,
    temperature: float = 1.0,
    head: bool = True,
) -> Measured:
    """Prepares the groups, moves the policy and the critic as an update would, and takes loss and gradients there."""
    roles = update_roles(settings, temperature=temperature, head=head, micro_batch_tokens=max_tokens)
    prepared = prepared_and_moved(roles, groups, step_settings(max_tokens, epochs=2, share_prefix=share_prefix))
    plan = ready_plan(roles, prepared)
    metrics = roles.policy.forward_backward(plan, roles.algorithm.loss)
    critic_metrics, of_critic = {}, {}
    if roles.critic is not None:
        critic_metrics = values(roles.critic.forward_backward(prepared.critic_plans[0]))
        of_critic = critic_gradients(roles.critic)
    return Measured(values(metrics), gradients(roles.policy), critic_metrics, of_critic, len(plan.micro_batches))


def prepared_and_moved(roles: Roles, groups: Sequence[Group], settings: StepSettings) -> PreparedUpdate:
    """Prepares the groups as one mini-batch, then moves what is trained."""
    prepared = prepare_update(roles, settings, groups)
    jolt(roles.policy.causal_lm)
    if roles.critic is not None:
        jolt(roles.critic.module, scale=0.05)
    return prepared


def ready_plan(roles: Roles, prepared: PreparedUpdate) -> MicroBatchPlan:
    """The only mini-batch, right before an update that is not the first."""
    (plan,) = prepared.plans
    return ready(roles, plan, is_first=False)[0]
