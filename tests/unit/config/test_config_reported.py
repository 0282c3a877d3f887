"""The names that a config may choose a best checkpoint by are those that an evaluation reports."""

from dataclasses import replace

from strop.config.evaluation import EvaluationConfig
from strop.config.reported import evaluation_metric_names
from strop.records import SamplingParams
from strop.trainers.evaluate import EvaluationSettings, evaluation_metrics, with_greedy
from support.tiny import tiny_groups


def test_every_name_is_reported_and_every_reported_name_is_known() -> None:
    config = EvaluationConfig.model_validate(
        {"source": {"type": "jsonl", "path": "x"}, "samples": 3, "pass_at": [1, 3], "greedy": True}
    )
    settings = EvaluationSettings(3, SamplingParams(8), seed=0, solved_at=1.0, pass_at=(1, 3))
    groups = tiny_groups(num_groups=3, group_size=3)
    reported = evaluation_metrics(groups, settings) | evaluation_metrics(groups, with_greedy(settings))
    assert set(evaluation_metric_names(config)) == {name for name in reported if "/part/" not in name}


def test_no_greedy_name_is_known_where_nothing_is_greedy() -> None:
    config = EvaluationConfig.model_validate({"source": {"type": "jsonl", "path": "x"}})
    settings = EvaluationSettings(1, SamplingParams(8), seed=0, solved_at=1.0)
    reported = evaluation_metrics(tiny_groups(3), replace(settings, pass_at=()))
    assert set(evaluation_metric_names(config)) == {name for name in reported if "/part/" not in name}
