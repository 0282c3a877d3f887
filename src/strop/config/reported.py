"""The names of the metrics that an evaluation reports, known before it runs."""

from strop.config.evaluation import EvaluationConfig

_ALWAYS = (
    "accuracy",
    "mean",
    "solved_share",
    "std",
    "accuracy_standard_error",
    "truncated_share",
    "error_share",
    "length",
)


def evaluation_metric_names(config: EvaluationConfig) -> tuple[str, ...]:
    """Returns the names that `checkpoint.keep_best` may take, in the order of a report."""
    sampled = tuple(f"eval/sampled/{name}" for name in (*_ALWAYS, *(f"pass_at_{k}" for k in config.pass_at)))
    return (*sampled, *(f"eval/greedy/{name}" for name in _ALWAYS)) if config.greedy else sampled
