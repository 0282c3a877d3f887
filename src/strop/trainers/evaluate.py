"""Evaluation: held-out prompts, sampling settings and random streams of its own.

It reads the sampler and the task and touches neither the training stream nor any random state.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strop.metrics import Metrics
from strop.metrics.score import Score
from strop.protocols import Sampler
from strop.records import Group, Prompt, SamplingParams
from strop.trainers.roles import Judge
from strop.trainers.sampling import sample_group, stream_keys
from strop.trainers.scores import Scoring, evaluation_metrics, evaluation_scores


@dataclass(frozen=True)
class EvaluationSettings:
    """How an evaluation samples and what it reports."""

    samples: int
    sampling: SamplingParams
    seed: int
    scoring: Scoring


@dataclass(frozen=True)
class EvaluationPlan:
    """Held-out prompts and the ways in which they are sampled."""

    prompts: Sequence[Prompt]
    settings: Sequence[EvaluationSettings]


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: its groups and its metrics under `eval/<label>/`."""

    groups: list[Group]
    metrics: Metrics
    scoring: Scoring

    @property
    def label(self) -> str:
        """Names the result beside others of the same prompts."""
        return self.scoring.label

    @property
    def scores(self) -> dict[str, Score]:
        """What a person reads of it, by name."""
        return evaluation_scores(self.groups, self.scoring)


async def evaluate(
    sampler: Sampler, judge: Judge, prompts: Sequence[Prompt], settings: EvaluationSettings
) -> Evaluation:
    """Samples and rewards every prompt; all groups are given to the engine at once, which batches them."""

    async def one(prompt: Prompt) -> Group:
        keys = stream_keys(prompt, settings.samples, settings.seed, "eval")
        return await judge(await sample_group(sampler, prompt, keys, settings.sampling))

    groups = list(await asyncio.gather(*(one(prompt) for prompt in prompts)))
    return Evaluation(groups, evaluation_metrics(groups, settings.scoring), settings.scoring)


def with_greedy(settings: EvaluationSettings) -> EvaluationSettings:
    """Returns the settings of the greedy evaluation beside a sampled one: one sample, temperature 0."""
    sampling = replace(settings.sampling, temperature=0.0, top_p=1.0, top_k=0)
    return replace(settings, samples=1, sampling=sampling, scoring=Scoring("greedy", settings.scoring.solved_at))
