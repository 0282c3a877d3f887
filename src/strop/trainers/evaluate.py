"""Evaluation: held-out prompts, sampling settings and random streams of its own.

It reads the sampler and the task and touches neither the training stream nor any random state.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strop.metrics import Metrics, mean
from strop.metrics.table import Score
from strop.protocols import Sampler
from strop.records import Group, Prompt, Sample, SamplingParams
from strop.trainers.roles import Judge
from strop.trainers.sampling import sample_group, stream_keys
from strop.trainers.statistics import reward_metrics


@dataclass(frozen=True)
class EvaluationSettings:
    """How an evaluation samples and what it reports."""

    samples: int
    sampling: SamplingParams
    seed: int
    solved_at: float
    pass_at: tuple[int, ...] = ()
    label: str = "sampled"
    """Names the result beside others of the same prompts, such as `greedy`."""


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
    label: str
    solved_at: float
    pass_at: tuple[int, ...] = ()


async def evaluate(
    sampler: Sampler, judge: Judge, prompts: Sequence[Prompt], settings: EvaluationSettings
) -> Evaluation:
    """Samples and rewards every prompt; all groups are given to the engine at once, which batches them."""

    async def one(prompt: Prompt) -> Group:
        keys = stream_keys(prompt, settings.samples, settings.seed, "eval")
        return await judge(await sample_group(sampler, prompt, keys, settings.sampling))

    groups = list(await asyncio.gather(*(one(prompt) for prompt in prompts)))
    metrics = evaluation_metrics(groups, settings)
    return Evaluation(groups, metrics, settings.label, settings.solved_at, settings.pass_at)


def evaluation_metrics(groups: Sequence[Group], settings: EvaluationSettings) -> Metrics:
    """Returns reward, accuracy with its standard error, pass@k and truncation under `eval/<label>/`.

    The standard error is that of the mean over prompts, which are the independent units: samples of one
    prompt are not. An invalid sample is not solved.
    """
    prefix = f"eval/{settings.label}"
    samples = [sample for group in groups for sample in group.samples]
    solved = [[_is_solved(sample, settings.solved_at) for sample in group.samples] for group in groups]
    shares = [sum(flags) / len(flags) for flags in solved if flags]
    metrics = {
        **reward_metrics(samples, settings.solved_at, prefix),
        f"{prefix}/accuracy": mean(sum(shares), len(shares)),
        f"{prefix}/truncated_share": mean(sum(sample.is_truncated for sample in samples), len(samples)),
        f"{prefix}/error_share": mean(sum(sample.reward is None for sample in samples), len(samples)),
        f"{prefix}/length": mean(sum(sample.num_sampled_tokens for sample in samples), len(samples), "tokens"),
    }
    if len(shares) > 1:
        metrics[f"{prefix}/accuracy_standard_error"] = mean(standard_error(shares), 1)
    for k in settings.pass_at:
        values = [pass_at_k(len(flags), sum(flags), k) for flags in solved]
        metrics[f"{prefix}/pass_at_{k}"] = mean(sum(values), len(values))
    return metrics


def _is_solved(sample: Sample, solved_at: float) -> bool:
    return sample.reward is not None and sample.reward >= solved_at


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean of independent values, from the n-1 standard deviation."""
    average = sum(values) / len(values)
    variance = sum((value - average) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def pass_at_k(num_samples: int, num_solved: int, k: int) -> float:
    """The unbiased estimate of solving at least once in k tries (Chen et al. 2021, arXiv:2107.03374)."""
    if not 1 <= k <= num_samples:
        raise ValueError(f"k must be between 1 and the number of samples ({num_samples}), got {k}")
    if num_samples - num_solved < k:
        return 1.0
    return 1.0 - math.prod((num_samples - num_solved - i) / (num_samples - i) for i in range(k))


def with_greedy(settings: EvaluationSettings) -> EvaluationSettings:
    """Returns the settings of the greedy evaluation beside a sampled one: one sample, temperature 0."""
    sampling = replace(settings.sampling, temperature=0.0, top_p=1.0, top_k=0)
    return replace(settings, samples=1, sampling=sampling, pass_at=(), label="greedy")


def evaluation_scores(evaluation: Evaluation) -> dict[str, Score]:
    """Returns accuracy, pass@k, and the mean of each reward part that only reports (weight 0), with standard errors."""
    groups, label = evaluation.groups, evaluation.label
    solved = [[_is_solved(sample, evaluation.solved_at) for sample in group.samples] for group in groups]
    scores = {label: _score([sum(flags) / len(flags) for flags in solved if flags])}
    for k in evaluation.pass_at:
        scores[f"{label}, pass@{k}"] = _score([pass_at_k(len(flags), sum(flags), k) for flags in solved])
    names = {
        name
        for group in groups
        for sample in group.samples
        for name, part in sample.reward_parts.items()
        if part.weight == 0
    }
    for name in sorted(names):
        means = [_part_mean(group, name) for group in groups]
        scores[f"{label}, {name}"] = _score([value for value in means if value is not None])
    return scores


def _part_mean(group: Group, name: str) -> float | None:
    parts = [sample.reward_parts[name].value for sample in group.samples if name in sample.reward_parts]
    valid = [value for value in parts if value is not None]
    return sum(valid) / len(valid) if valid else None


def _score(per_prompt: Sequence[float]) -> Score:
    count = len(per_prompt)
    error = standard_error(per_prompt) if count > 1 else 0.0
    return Score(sum(per_prompt) / count if count else 0.0, error, count)
