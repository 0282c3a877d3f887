"""Gold responses that the data show: they are rendered as the task asks for them, and their own grader judges them."""

import asyncio
import json
from typing import Any

import pytest

from strop.config.data import DataConfig
from strop.config.rewards import RewardConfig
from strop.tasks import GoldReport, QuestionTask, build_rewards, build_task, score_gold
from support.groups import made_prompt

DOUBLE = 'TESTED = """\n```\nnothing\n```\n"""\nprint(2 * int(input()))'
TESTS = json.dumps({"inputs": ["3", "4"], "outputs": ["6", "8"]})


def make_task(name: str, column: str | None = "shown") -> QuestionTask:
    settings = {"source": {"type": "jsonl", "path": "x"}, "task": name, "gold_response_column": column}
    return build_task(name, DataConfig.model_validate(settings))


def report_of(task: QuestionTask, *rows: dict[str, Any]) -> GoldReport:
    rewards = build_rewards([RewardConfig(function="task")], task)
    return asyncio.run(
        score_gold(task, rewards, [made_prompt(f"made:{place}", **row) for place, row in enumerate(rows)])
    )


@pytest.mark.parametrize(
    "shown",
    [
        DOUBLE,
        [DOUBLE, "raise SystemExit(1)"],
        json.dumps([DOUBLE, "raise SystemExit(1)"]),
        "Read, double, print.\n```python\nprint(2 * int(input()))\n```\nDone.",
    ],
)
def test_a_program_that_the_row_shows_is_run_against_its_tests(shown: Any) -> None:
    report = report_of(make_task("code"), {"question": "Double.", "tests": TESTS, "shown": shown})
    assert (report.num_graded, report.failures) == (1, [])


def test_a_program_that_fails_its_tests_fails_the_self_test() -> None:
    rows = [{"question": "Double.", "tests": TESTS, "shown": text} for text in (DOUBLE, "print(6)")]
    report = report_of(make_task("code"), *rows)
    assert report.passed_share == 0.5
    assert "on made:1" in report.failures[0]


def test_a_match_that_the_row_shows_is_tried_on_its_pattern() -> None:
    rows = [{"question": "?", "pattern": r"\d{3}", "shown": shown} for shown in ("123", "12", None)]
    report = report_of(make_task("regex"), *rows)
    assert (report.num_graded, report.num_without_gold, report.passed_share) == (2, 1, 0.5)


@pytest.mark.parametrize("task", ["code", "regex"])
def test_without_such_a_column_the_task_is_reported_as_not_self_testable(task: str) -> None:
    row = {"question": "?", "tests": TESTS, "pattern": "a", "shown": "a"}
    report = report_of(make_task(task, None), row)
    assert report.num_graded == 0
    assert report.line.startswith(f"{task} is not self-testable")


def test_it_replaces_the_response_that_other_tasks_make() -> None:
    row = {"question": "?", "answer": "#### 6", "shown": "It is six.\n#### 6"}
    assert make_task("gsm8k").render_gold(row) == row["shown"]
    assert make_task("gsm8k", None).render_gold(row) == "#### 6"


def test_what_no_response_is_and_what_the_grader_cannot_read_is_an_error() -> None:
    task = make_task("code")
    for shown in ("", 7, [3]):
        with pytest.raises(ValueError, match="column 'shown' must hold a gold response"):
            task.render_gold({"tests": TESTS, "shown": shown})
    with pytest.raises(ValueError, match="test cases must be JSON"):
        task.render_gold({"tests": "nothing", "shown": DOUBLE})
    with pytest.raises(KeyError, match=r"data\.gold_response_column must name a column of the data, got 'shown'"):
        task.render_gold({"tests": TESTS})
