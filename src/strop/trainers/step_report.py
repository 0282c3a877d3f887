"""What is measured of a whole step: its groups and updates, its time, its memory.

Rewards, lengths and shares are over all that was generated (`reward/`, `length/`, `samples/`). Where some of it was
left out, by dynamic sampling or a choice within groups, those over what was kept are reported too (`kept/`).
"""

from strop.metrics import Metrics, maximum
from strop.trainers.build import Run
from strop.trainers.statistics import group_metrics, kept_metrics
from strop.trainers.step import Collected, Updated


def step_metrics(collected: Collected, updated: Updated, solved_at: float) -> Metrics:
    """Returns what was sampled, over all generated groups, and what the updates did."""
    groups = group_metrics(
        collected.generated,
        num_kept=len(collected.kept),
        num_rounds=collected.num_rounds,
        solved_at=solved_at,
    )
    return groups | kept_metrics(collected.generated, collected.kept, solved_at) | updated.metrics


def with_rewards_apart(timing: Metrics, reward_seconds: float) -> Metrics:
    """Returns the timing of a step with the wait for rewards as a phase of its own, taken out of the rollout."""
    if "timing/rollout_seconds" not in timing:
        return timing
    return timing | {
        "timing/rollout_seconds": maximum(timing["timing/rollout_seconds"].value - reward_seconds, "s"),
        "timing/reward_seconds": maximum(reward_seconds, "s"),
    }


def memory_metrics(run: Run) -> Metrics:
    """Returns the peak so far, and what the samplers gave back while they slept."""
    released_bytes = sum(one.released_bytes for one in run.cluster.run(run.samplers.facts()))
    return {
        "memory/peak_bytes": maximum(run.device.peak_memory_bytes(), "bytes"),
        "memory/released_bytes": maximum(released_bytes, "bytes"),
    }
