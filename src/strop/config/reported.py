"""The names of the metrics that an evaluation reports, known before it runs."""

from strop.config.data import MixtureSource
from strop.config.evaluation import EvaluationConfig
from strop.config.source_names import part_name

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
    sampled = (*_ALWAYS, *(f"pass_at_{k}" for k in config.pass_at))
    ways = {"sampled": sampled} | ({"greedy": _ALWAYS} if config.greedy else {})
    parts = config.source.parts if isinstance(config.source, MixtureSource) else []
    places = ["", *(f"by_source/{part_name(part)}/" for part in parts if len(parts) > 1)]
    return tuple(f"eval/{way}/{place}{name}" for way, names in ways.items() for place in places for name in names)
