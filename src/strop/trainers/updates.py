"""What the optimizer updates of a step did: their metrics, and in words which samples are to blame for skipped ones."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from strop.metrics import Metrics, maximum, mean, merge, total
from strop.protocols import Critic, UpdateReport
from strop.records import Group, MicroBatchPlan
from strop.records.packing import SampleKey
from strop.training.errors import TooManySkippedUpdates


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


def update_critic(critic: Critic, plan: MicroBatchPlan, groups: Sequence[Group]) -> tuple[Metrics, list[str]]:
    """Updates the critic from a mini-batch; returns what it did, and what a person should be told."""
    metrics = critic.forward_backward(plan)
    with naming_prompts(groups):
        report = critic.optimizer_step()
    if report.applied:
        metrics = merge([metrics, {"value/gradient_norm": mean(report.gradient_norm, 1)}])
    return metrics, [f"of the critic: {note}" for note in skip_note(report, groups)]


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
