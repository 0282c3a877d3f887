"""What a batch of groups says in numbers: always over all generated groups, named so that it is clear."""

import math
from collections import defaultdict
from collections.abc import Sequence

from strop.algorithms.shaping import judged_reward
from strop.metrics import Metrics, maximum, mean, total
from strop.records import FinishState, Group, Sample
from strop.trainers.judgements import is_rewarded, slowest_judgement


def group_metrics(groups: Sequence[Group], *, num_kept: int, num_rounds: int, solved_at: float) -> Metrics:
    """Returns reward, length, finish-state and signal metrics over all generated groups of a step.

    Truncated and failed samples count in every length and share; invalid rewards are in `samples/error_share`
    and in no reward mean.
    """
    samples = [sample for group in groups for sample in group.samples]
    metrics = {
        **_sample_metrics(samples),
        **_source_metrics(groups, solved_at),
        **_baseline_metrics(groups),
        "groups/generated": total(len(groups)),
        "groups/kept": total(num_kept),
        "groups/sampling_rounds": total(num_rounds),
    }
    if groups and not is_rewarded(groups):
        return metrics
    zero_signal = mean(sum(not group.has_signal for group in groups), len(groups))
    return {**reward_metrics(samples, solved_at), **metrics, "groups/zero_signal_share": zero_signal}


def reward_metrics(samples: Sequence[Sample], solved_at: float, prefix: str = "reward") -> Metrics:
    """Returns mean, spread and solved share of the valid rewards, and the mean of each reward part.

    A sample is solved by what it was judged, before its length or truncation cost anything.
    """
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    judged = [reward for sample in samples if (reward := judged_reward(sample)) is not None]
    metrics: Metrics = {
        f"{prefix}/mean": mean(sum(rewards), len(rewards)),
        f"{prefix}/solved_share": mean(sum(reward >= solved_at for reward in judged), len(judged)),
    }
    if rewards:
        metrics[f"{prefix}/std"] = mean(_std(rewards), 1)
    parts: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        for name, part in sample.reward_parts.items():
            parts[name] += [part.value] if part.value is not None else []
    if len(parts) > 1:
        metrics |= {f"{prefix}/part/{name}": mean(sum(values), len(values)) for name, values in parts.items()}
    return metrics


def kept_metrics(generated: Sequence[Group], kept: Sequence[Group], solved_at: float) -> Metrics:
    """Returns rewards and lengths over what is trained on, where that is not all that was generated."""
    every, some = ([sample for group in groups for sample in group.samples] for groups in (generated, kept))
    if len(some) == len(every):
        return {}
    lengths = [sample.num_sampled_tokens for sample in some]
    return {
        **reward_metrics(some, solved_at, "kept/reward"),
        "kept/samples": total(len(some)),
        "kept/length/mean": mean(sum(lengths), len(lengths), "tokens"),
        "kept/samples/truncated_share": mean(sum(sample.is_truncated for sample in some), len(some)),
    }


def _baseline_metrics(groups: Sequence[Group]) -> Metrics:
    """Returns what greedy baselines earned, where there are any, and how many could not be judged."""
    baselines = [group.baseline for group in groups if group.baseline is not None]
    if not baselines:
        return {}
    rewards = [sample.reward for sample in baselines if sample.reward is not None]
    return {
        "baseline/reward": mean(sum(rewards), len(rewards)),
        "baseline/error_share": mean(len(baselines) - len(rewards), len(baselines)),
    }


def is_invalid(sample: Sample) -> bool:
    """Whether a judgement failed; a sample that nobody judges is none."""
    is_lost = sample.finish in (FinishState.ABORTED, FinishState.FAILED)
    return sample.reward is None and (is_lost or bool(sample.reward_parts or sample.error))


def _std(values: Sequence[float]) -> float:
    """The population standard deviation."""
    average = sum(values) / len(values)
    return math.sqrt(sum((value - average) ** 2 for value in values) / len(values))


def _sample_metrics(samples: Sequence[Sample]) -> Metrics:
    lengths = [sample.num_sampled_tokens for sample in samples]
    num_failed = sum(is_invalid(sample) for sample in samples)
    metrics: Metrics = {
        "samples/truncated_share": mean(sum(sample.is_truncated for sample in samples), len(samples)),
        "samples/error_share": mean(num_failed, len(samples)),
        "length/mean": mean(sum(lengths), len(lengths), "tokens"),
        "tokens/sampled": total(sum(lengths), "tokens"),
    }
    for state in (FinishState.ABORTED, FinishState.FAILED):
        count = sum(sample.finish is state for sample in samples)
        if count:
            metrics[f"samples/{state}_share"] = mean(count, len(samples))
    if lengths:
        metrics["length/max"] = maximum(max(lengths), "tokens")
    return metrics | slowest_judgement(samples)


def _source_metrics(groups: Sequence[Group], solved_at: float) -> Metrics:
    """Rewards, truncation and lengths by data source, where there are several."""
    by_source: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_source[group.prompt.source].append(group)
    if len(by_source) < 2:
        return {}
    metrics: Metrics = {}
    for source, own in by_source.items():
        samples = [sample for group in own for sample in group.samples]
        lengths = [sample.num_sampled_tokens for sample in samples]
        metrics |= reward_metrics(samples, solved_at, f"reward_by_source/{source}")
        metrics |= {
            f"groups_by_source/{source}/generated": total(len(own)),
            f"groups_by_source/{source}/zero_signal_share": mean(sum(not group.has_signal for group in own), len(own)),
            f"samples_by_source/{source}/truncated_share": mean(
                sum(sample.is_truncated for sample in samples), len(samples)
            ),
            f"length_by_source/{source}/mean": mean(sum(lengths), len(lengths), "tokens"),
        }
    return metrics


def first_error(groups: Sequence[Group]) -> str | None:
    """The first error text of any sample, to show a person; None where there is none."""
    for group in groups:
        for sample in group.samples:
            errors = [sample.error, *(part.error for part in sample.reward_parts.values())]
            found = next((error for error in errors if error), None)
            if found:
                return found
    return None
