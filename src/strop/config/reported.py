"""The names of the metrics that an evaluation reports, known before it runs."""

from strop.config.evaluation import EvaluationConfig


def evaluation_metric_names(config: EvaluationConfig) -> tuple[str, ...]:
    """Returns the names that `checkpoint.keep_best` may take, in the order of a report."""
    sampled = ("eval/reward_mean", "eval/solved_share", *(f"eval/pass_at_{k}" for k in config.pass_at))
    return (*sampled, "eval/greedy_reward_mean", "eval/greedy_solved_share") if config.greedy else sampled
