"""What an evaluation says in numbers: metrics for the sinks, scores with their standard errors for a person.

Prompts are the independent units of every standard error: samples of one prompt are not. An invalid sample is not
solved. Where the prompts come from several data sets, each has its own numbers beside those of all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from strop.metrics import Metrics, mean
from strop.metrics.score import Score, standard_error
from strop.records import Group, Sample
from strop.trainers.statistics import reward_metrics


@dataclass(frozen=True)
class Scoring:
    """What is counted, and under which name."""

    label: str
    """Names the result beside others of the same prompts, such as `greedy`."""
    solved_at: float
    """A sample is solved when its reward is at least this."""
    pass_at: tuple[int, ...] = ()

    def is_solved(self, sample: Sample) -> bool:
        """Whether a sample is solved."""
        return sample.reward is not None and sample.reward >= self.solved_at

    def solved_share(self, group: Group) -> float | None:
        """The share of a prompt's samples that are solved; None where it has no samples."""
        flags = [self.is_solved(sample) for sample in group.samples]
        return sum(flags) / len(flags) if flags else None

    def passes(self, group: Group, k: int) -> float:
        """The estimate of solving a prompt at least once in k tries."""
        return pass_at_k(len(group.samples), sum(map(self.is_solved, group.samples)), k)


def evaluation_metrics(groups: Sequence[Group], scoring: Scoring) -> Metrics:
    """Returns reward, accuracy with its standard error, pass@k and truncation under `eval/<label>/`.

    Those of one of several data sets stand under `eval/<label>/by_source/<name>/`.
    """
    prefix = f"eval/{scoring.label}"
    metrics = _metrics(groups, scoring, prefix)
    for source, own in _by_source(groups).items():
        metrics |= _metrics(own, scoring, f"{prefix}/by_source/{source}")
    return metrics


def evaluation_scores(groups: Sequence[Group], scoring: Scoring) -> dict[str, Score]:
    """Returns accuracy, that of each data set, pass@k, and the mean of each reward part of weight 0, which reports."""
    label = scoring.label
    scores: dict[str, Score | None] = {label: _score(groups, scoring.solved_share)}
    for source, own in _by_source(groups).items():
        scores[f"{label} on {source}"] = _score(own, scoring.solved_share)
    for k in scoring.pass_at:
        scores[f"{label}, pass@{k}"] = _score(groups, partial(scoring.passes, k=k))
    names = {
        name
        for group in groups
        for sample in group.samples
        for name, part in sample.reward_parts.items()
        if part.weight == 0
    }
    for name in sorted(names):
        scores[f"{label}, {name}"] = _score(groups, partial(_part_mean, name=name))
    return {name: score for name, score in scores.items() if score is not None}


def pass_at_k(num_samples: int, num_solved: int, k: int) -> float:
    """The unbiased estimate of solving at least once in k tries (Chen et al. 2021, arXiv:2107.03374)."""
    if not 1 <= k <= num_samples:
        raise ValueError(f"k must be between 1 and the number of samples ({num_samples}), got {k}")
    if num_samples - num_solved < k:
        return 1.0
    return 1.0 - math.prod((num_samples - num_solved - i) / (num_samples - i) for i in range(k))


def _metrics(groups: Sequence[Group], scoring: Scoring, prefix: str) -> Metrics:
    samples = [sample for group in groups for sample in group.samples]
    shares = [share for group in groups if (share := scoring.solved_share(group)) is not None]
    metrics = {
        **reward_metrics(samples, scoring.solved_at, prefix),
        f"{prefix}/accuracy": mean(sum(shares), len(shares)),
        f"{prefix}/truncated_share": mean(sum(sample.is_truncated for sample in samples), len(samples)),
        f"{prefix}/error_share": mean(sum(sample.reward is None for sample in samples), len(samples)),
        f"{prefix}/length": mean(sum(sample.num_sampled_tokens for sample in samples), len(samples), "tokens"),
    }
    if len(shares) > 1:
        metrics[f"{prefix}/accuracy_standard_error"] = mean(standard_error(shares), 1)
    for k in scoring.pass_at:
        values = [scoring.passes(group, k) for group in groups]
        metrics[f"{prefix}/pass_at_{k}"] = mean(sum(values), len(values))
    return metrics


def _by_source(groups: Sequence[Group]) -> Mapping[str, list[Group]]:
    """The groups of each data set; empty where there is only one."""
    sources: dict[str, list[Group]] = {}
    for group in groups:
        sources.setdefault(group.prompt.source, []).append(group)
    return sources if len(sources) > 1 else {}


def _score(groups: Sequence[Group], value: Callable[[Group], float | None]) -> Score | None:
    """The score of the groups that have a value; None where none has."""
    values = [(group.prompt.prompt_id, value(group)) for group in groups]
    known = [(name, one) for name, one in values if one is not None]
    return Score.of(known) if known else None


def _part_mean(group: Group, name: str) -> float | None:
    parts = [sample.reward_parts[name].value for sample in group.samples if name in sample.reward_parts]
    valid = [value for value in parts if value is not None]
    return sum(valid) / len(valid) if valid else None
