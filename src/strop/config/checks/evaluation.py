"""Evaluation and the checkpoints that depend on it."""

from collections.abc import Iterator

from strop.config.checks.mixture import PosedData, posed_data
from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.data import ReasoningGymSource
from strop.config.evaluation import EvaluationConfig
from strop.config.reported import evaluation_metric_names
from strop.config.root import Config


def check_evaluation(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `evaluation`."""
    evaluation = config.evaluation
    if evaluation is None:
        return
    if not (evaluation.every or evaluation.before or evaluation.after):
        yield Refusal(
            "evaluation",
            "never takes place: evaluation.every is 0, evaluation.before and evaluation.after are false",
            "Set one of them, or leave the table out.",
        )
    if evaluation.temperature == 0:
        yield from _check_greedy(evaluation)
    yield from _check_pass_at(evaluation)
    yield from _check_source(config, evaluation)


def _check_greedy(evaluation: EvaluationConfig) -> Iterator[Refusal]:
    if evaluation.samples > 1:
        yield Refusal(
            "evaluation.samples",
            f"must be 1 where evaluation.temperature is 0 (greedy samples are all equal), got {evaluation.samples}",
            "Set evaluation.temperature to 1, say, or evaluation.samples to 1.",
        )
    for key in ("top_p", "top_k", "greedy"):
        if given(evaluation, key):
            yield does_nothing(
                f"evaluation.{key}", "evaluation.temperature is 0, which is greedy already", "Leave it out."
            )


def _check_pass_at(evaluation: EvaluationConfig) -> Iterator[Refusal]:
    for k in evaluation.pass_at:
        if not 1 <= k <= evaluation.samples:
            yield Refusal(
                "evaluation.pass_at",
                f"must hold numbers from 1 to evaluation.samples ({evaluation.samples}), got {k}",
                "Raise evaluation.samples or take it out.",
            )
    if len(set(evaluation.pass_at)) < len(evaluation.pass_at):
        yield Refusal("evaluation.pass_at", f"must name each k once, got {evaluation.pass_at}", "Take the double out.")


def _check_source(config: Config, evaluation: EvaluationConfig) -> Iterator[Refusal]:
    for held_out in posed_data(config.data, evaluation.source, "evaluation.source"):
        for training in posed_data(config.data, config.data.source, "data.source"):
            yield from _check_seeds(config, evaluation, training, held_out)


def _check_seeds(
    config: Config, evaluation: EvaluationConfig, training: PosedData, held_out: PosedData
) -> Iterator[Refusal]:
    """Row i of a reasoning_gym generator is made from seed + i: neighbouring seeds share all rows but one."""
    source, other = training.source, held_out.source
    if not (isinstance(source, ReasoningGymSource) and isinstance(other, ReasoningGymSource)):
        return
    if (source.name, source.options) != (other.name, other.options):
        return
    trained = _row_seeds(source, config.data.limit)
    measured = _row_seeds(other, evaluation.limit)
    num_shared = min(trained.stop, measured.stop) - max(trained.start, measured.start)
    if num_shared > 0:
        yield Refusal(
            f"{held_out.source_key}.seed",
            f"must leave the rows apart from those of {training.source_key} (row i is made from seed + i), got "
            f"{other.seed} beside {source.seed}: {num_shared} rows would be in both",
            f"Set {held_out.source_key}.seed to {trained.stop} or more.",
        )


def _row_seeds(source: ReasoningGymSource, limit: int | None) -> range:
    """The seeds of the rows that are read."""
    return range(source.seed, source.seed + min(source.size, limit or source.size))


def check_checkpoint(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `checkpoint`."""
    checkpoint = config.checkpoint
    if checkpoint.every == 0:
        for key in ("keep", "keep_best"):
            if given(checkpoint, key):
                yield does_nothing(
                    f"checkpoint.{key}",
                    "checkpoint.every is 0, which saves none",
                    "Set checkpoint.every, or leave it out.",
                )
    if checkpoint.keep_best is None:
        if given(checkpoint, "best_is"):
            yield does_nothing("checkpoint.best_is", "checkpoint.keep_best is not given", "Set it, or leave this out.")
    else:
        yield from _check_keep_best(config, checkpoint.keep_best)


def _check_keep_best(config: Config, name: str) -> Iterator[Refusal]:
    if config.evaluation is None:
        yield Refusal(
            "checkpoint.keep_best",
            "needs an evaluation to measure by, and there is none",
            "Add an [evaluation] table, or leave it out.",
        )
        return
    reported = evaluation_metric_names(config.evaluation)
    if name not in reported:
        yield Refusal(
            "checkpoint.keep_best",
            f"must be a metric that the evaluation reports ({', '.join(reported)}), got {name!r}",
            "Take one of these.",
        )
    between, every = config.evaluation.every, config.checkpoint.every
    if between == 0:
        yield Refusal(
            "checkpoint.keep_best",
            "needs evaluations between the steps, and evaluation.every is 0",
            "Set evaluation.every, to checkpoint.every say.",
        )
    elif every and between % every:
        yield Refusal(
            "checkpoint.keep_best",
            f"needs a checkpoint at each evaluation, or the best step may be lost, got evaluations every {between} "
            f"steps and checkpoints every {every}",
            "Make evaluation.every a multiple of checkpoint.every.",
        )
