"""The run folder, the sinks and the bounds of the proof."""

from collections.abc import Iterator

from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.offline import OfflineConfig
from strop.config.root import Config

_LOOSEST_PROOF = 0.5


def check_run(config: Config | OfflineConfig) -> Iterator[Refusal]:
    """Yields refusals of `run`."""
    name = config.run.name
    if name in ("", ".", "..") or "/" in name or "\\" in name or name != name.strip():
        yield Refusal(
            "run.name", f"must be the plain name of a folder, got {name!r}", "Put the folder above into run.output_dir."
        )


def check_metrics(config: Config | OfflineConfig) -> Iterator[Refusal]:
    """Yields refusals of `metrics`."""
    sinks = config.metrics.sinks
    if given(config.metrics, "project") and not set(sinks) - {"tensorboard"}:
        yield does_nothing(
            "metrics.project",
            "no sink in metrics.sinks has projects",
            "Add wandb, trackio or mlflow to metrics.sinks, or leave it out.",
        )
    if len(set(sinks)) < len(sinks):
        yield Refusal("metrics.sinks", f"must name each sink once, got {', '.join(sinks)}", "Take the double out.")


def check_weight_sync(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `weight_sync`."""
    bound = config.weight_sync.max_logprob_difference
    if bound is not None and bound > _LOOSEST_PROOF:
        yield Refusal(
            "weight_sync.max_logprob_difference",
            f"must be at most {_LOOSEST_PROOF}, or stale weights pass as proven, got {bound}",
            "Leave it out to take the bound of the sampler's number type.",
        )
