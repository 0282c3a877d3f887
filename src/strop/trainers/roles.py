"""Who does what in a step, and how much of it: what every schedule is given."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from strop.distillation.teachers import Teachers
from strop.protocols import Algorithm, Critic, PlanScorer, PolicyUpdater, PromptSource, Sampler
from strop.records import Group, SamplingParams
from strop.training.costs import ComputeCosts

Judge = Callable[[Group], Awaitable[Group]]
"""Returns the group with rewards on its samples."""


@dataclass(frozen=True)
class Roles:
    """Who does what in a step. Every role is a seam of `protocols.py`."""

    prompts: PromptSource
    sampler: Sampler
    judge: Judge
    algorithm: Algorithm
    policy: PolicyUpdater
    reference: PlanScorer | None = None
    critic: Critic | None = None
    teachers: Teachers | None = None


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
    num_ranks: int = 1
    """Processes that train together; each computes its part of a plan."""
    costs: ComputeCosts = field(default_factory=ComputeCosts)
    """Of the policy: what work is shared out by."""
