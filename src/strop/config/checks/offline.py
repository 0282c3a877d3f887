"""Keys of an offline run that cannot work, or do nothing, together."""

import difflib
from collections.abc import Iterator

from strop.config.base import unobserved
from strop.config.checks.model import check_model
from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.checks.run import check_metrics, check_run
from strop.config.offline import COLUMNS, OfflineConfig, SamplesSource
from strop.errors import ConfigError

OFFLINE_SCORES = {
    "sft": ("eval/loss", "eval/perplexity"),
    "dpo": ("eval/loss", "eval/rewards/margin", "eval/rewards/accuracy"),
    "ipo": ("eval/loss", "eval/rewards/margin", "eval/rewards/accuracy"),
    "kto": ("eval/loss", "eval/rewards/margin"),
}
"""What `checkpoint.keep_best` may name, by method."""


def check_offline(config: OfflineConfig) -> None:
    """Raises ConfigError naming every key that cannot work or does nothing, with the reason and a remedy."""
    with unobserved():
        found = list(offline_refusals(config))
    if found:
        lines = "\n".join(f"  {refusal}" for refusal in found)
        raise ConfigError(f"the config cannot run as it stands:\n{lines}")


def offline_refusals(config: OfflineConfig) -> Iterator[Refusal]:
    """Yields every reason why this config cannot run as it stands."""
    yield from check_run(config)
    yield from check_model(config)
    yield from check_metrics(config)
    if not config.metrics.save_samples:
        yield does_nothing("metrics.save_samples", "an offline run samples nothing", "Leave it out.")
    if config.model.rollout_dtype is not None:
        yield does_nothing("model.rollout_dtype", "an offline run has no sampler", "Leave it out.")
    yield from _check_data(config)
    yield from _check_training(config)
    yield from _check_best(config)


def _check_data(config: OfflineConfig) -> Iterator[Refusal]:
    for name in config.data.columns:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            remedy = f"Did you mean {near[0]}?" if near else "The value is your column's name, the key is ours."
            yield Refusal("data.columns", f"must rename {', '.join(COLUMNS)}, got {name!r}", remedy)
    sources = {"data.source": config.data.source}
    if config.evaluation is not None:
        sources["evaluation.source"] = config.evaluation.source
    for key, source in sources.items():
        if isinstance(source, SamplesSource) and config.offline.type != "sft":
            yield Refusal(
                f"{key}.type",
                f"must be jsonl, parquet or hub with {config.offline.type}, got samples",
                "Only sft learns from the samples of a run.",
            )
    if config.data.epochs is None and not config.run.steps:
        yield Refusal("run.steps", "must be given where data.epochs is left open, got 0", "Set one of them.")


def _check_training(config: OfflineConfig) -> Iterator[Refusal]:
    training = config.training
    for key in ("updates_per_batch", "epochs_per_batch"):
        if given(training, key):
            yield does_nothing(
                f"training.{key}",
                "offline, a batch is one update",
                "Set training.batch_size, and data.epochs for more passes.",
            )
    if given(training, "shard_size"):
        yield does_nothing("training.shard_size", "an offline run is one process", "Leave it out.")
    if training.schedule == "constant":
        for key in ("schedule_updates", "minimum_learning_rate"):
            if given(training, key):
                yield does_nothing(
                    f"training.{key}", "training.schedule is constant", 'Set training.schedule to "linear" or "cosine".'
                )
    elif training.minimum_learning_rate >= training.learning_rate:
        yield Refusal(
            "training.minimum_learning_rate",
            f"must be below training.learning_rate ({training.learning_rate}), got {training.minimum_learning_rate}",
            "Lower it, or take the constant schedule.",
        )
    if config.offline.type == "kto" and training.batch_size < 2:
        yield Refusal(
            "training.batch_size",
            "must be at least 2 with kto, whose reference point is taken over the other rows of a batch, "
            f"got {training.batch_size}",
            "Raise it; the batch is cut into micro-batches by training.micro_batch_tokens.",
        )


def _check_best(config: OfflineConfig) -> Iterator[Refusal]:
    best, known = config.checkpoint.keep_best, OFFLINE_SCORES[config.offline.type]
    if best is None:
        return
    if config.evaluation is None:
        yield does_nothing("checkpoint.keep_best", "there is no [evaluation]", "Add one, or leave it out.")
    elif best not in known:
        yield Refusal("checkpoint.keep_best", f"must be one of {', '.join(known)}, got {best}", "Take one of these.")
    elif best in ("eval/loss", "eval/perplexity") and config.checkpoint.best_is == "highest":
        yield Refusal(
            "checkpoint.best_is", f'must be "lowest" with {best}, got highest', 'Set checkpoint.best_is = "lowest".'
        )
