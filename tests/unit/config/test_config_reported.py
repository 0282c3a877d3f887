"""The names that a config may choose a best checkpoint by are those that an evaluation reports."""

from dataclasses import replace
from typing import Any

import pytest

from strop.config.evaluation import EvaluationConfig
from strop.config.reported import evaluation_metric_names
from strop.records import Group
from strop.trainers.scores import Scoring, evaluation_metrics
from support.tiny import tiny_groups

PLAIN = {"type": "jsonl", "path": "x"}
MIXTURE = {"type": "mixture", "parts": [{"source": PLAIN}, {"source": PLAIN, "name": "other"}]}


def groups_of(*sources: str) -> list[Group]:
    return [
        replace(group, prompt=replace(group.prompt, source=source))
        for source in sources
        for group in tiny_groups(num_groups=3, group_size=3)
    ]


@pytest.mark.parametrize(
    ("source", "sources"),
    [(PLAIN, ["x"]), (MIXTURE, ["x", "other"]), ({**MIXTURE, "parts": [{"source": PLAIN}]}, ["x"])],
)
def test_every_name_is_reported_and_every_reported_name_is_known(source: dict[str, Any], sources: list[str]) -> None:
    config = EvaluationConfig.model_validate({"source": source, "samples": 3, "pass_at": [1, 3], "greedy": True})
    ways = [Scoring("sampled", 1.0, (1, 3)), Scoring("greedy", 1.0)]
    reported = {name for way in ways for name in evaluation_metrics(groups_of(*sources), way)}
    assert set(evaluation_metric_names(config)) == {name for name in reported if "/part/" not in name}


def test_no_greedy_name_is_known_where_nothing_is_greedy() -> None:
    config = EvaluationConfig.model_validate({"source": PLAIN})
    reported = evaluation_metrics(groups_of("x"), Scoring("sampled", 1.0))
    assert set(evaluation_metric_names(config)) == {name for name in reported if "/part/" not in name}
