"""The self-test of rewards: which rows are tried, what counts as right, and what a person is told."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from strop.protocols import RewardFunction
from strop.records import Group, Message, Prompt, RewardPart
from strop.tasks import GoldReport, WeightedReward, score_gold
from strop.tasks.gold import MAX_EMPTY_SCORE, NUM_FUNCTION_ROWS, evenly_spaced
from support.groups import made_prompt


@dataclass
class Made:
    """A task whose gold response is the column gold, and its grader, which says what a table says of each text."""

    scores: Mapping[str, float | None]
    name: str = "made"
    rewards: Sequence[RewardFunction] = ()

    def messages(self, row: Mapping[str, Any]) -> list[Message]:
        return [Message(role="user", content="?")]

    def render_gold(self, row: Mapping[str, Any]) -> str | None:
        return row["gold"]

    def check_columns(self, columns: frozenset[str]) -> None:
        assert "gold" in columns

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        return [RewardPart(self.scores.get(text, 1.0)) for text in completions]


def prompts(*golds: str | None) -> list[Prompt]:
    return [made_prompt(f"made:{index}", gold=gold) for index, gold in enumerate(golds)]


def report_of(
    scores: Mapping[str, float | None], golds: Sequence[str | None], *, is_grader: bool = True, **settings: Any
) -> GoldReport:
    task = Made(scores)
    reward = WeightedReward(task, "made", is_task_grader=is_grader)
    return asyncio.run(score_gold(task, [reward], prompts(*golds), **settings))


@dataclass
class Failing:
    """A function that fails on the rows of a list, after some seconds."""

    rows: Sequence[str]
    seconds: float = 0.0
    num_calls: int = 0

    def check_columns(self, columns: frozenset[str]) -> None: ...

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        self.num_calls += len(completions)
        if group.prompt.prompt_id in self.rows:
            return [RewardPart(None, error="it broke", seconds=self.seconds) for _ in completions]
        return [RewardPart(float(bool(text))) for text in completions]


ROWS = [f"made:{index}" for index in range(5)]


@pytest.mark.parametrize(
    ("rows", "seconds", "num_calls", "broken"),
    [
        (ROWS, 0.0, 6, ["reward 'mine' failed in all 6 calls of the self-test, the first: it broke"]),
        (ROWS, 9.0, 2, ["reward 'mine' failed in all 2 calls of the self-test, the first: it broke"]),
        (ROWS[:2], 0.0, 10, []),
        (ROWS[1:], 0.0, 10, []),
        ([], 0.0, 10, []),
    ],
)
def test_a_function_that_fails_in_every_call_is_broken_after_a_few(
    rows: Sequence[str], seconds: float, num_calls: int, broken: Sequence[str]
) -> None:
    function = Failing(rows, seconds)
    report = asyncio.run(score_gold(Made({}), [WeightedReward(function, "mine")], prompts(*"abcde")))
    assert (function.num_calls, report.broken) == (num_calls, broken)


def test_a_grader_that_is_right_about_every_row_passes() -> None:
    report = report_of({"": 0.0}, ["a", "b"])
    assert (report.failures, report.passed_share, report.num_graded) == ([], 1.0, 2)
    assert report.line == "made: gold and empty answers graded on 2 rows of 2"


@pytest.mark.parametrize(
    ("gold", "empty", "passes"),
    [
        (1.0, 0.0, True),
        (1.0, MAX_EMPTY_SCORE, True),
        (1.0, 0.06, False),
        (1.0, 1.0, False),
        (1.0, -0.1, False),
        (1.0, None, False),
        (0.99, 0.0, False),
        (None, 0.0, False),
        (0.0, 0.0, False),
    ],
)
def test_gold_must_score_one_and_empty_nothing_or_a_little(
    gold: float | None, empty: float | None, passes: bool
) -> None:
    report = report_of({"a": gold, "": empty}, ["a"])
    assert (not report.failures) == passes
    assert report.passed_share == float(passes)


def test_the_share_counts_rows_and_each_failure_names_one() -> None:
    report = report_of({"": 0.0, "bad": 0.0, "worse": None}, ["a", "bad", "b", "worse"])
    assert report.passed_share == 0.5
    assert [failure.split(" on ")[1].split(" ")[0] for failure in report.failures] == ["made:1", "made:3"]


def test_rows_without_gold_are_counted_and_told() -> None:
    some = report_of({"": 0.0}, ["a", None, None])
    assert (some.num_without_gold, some.num_graded) == (2, 1)
    assert some.line.endswith("; 2 more have no gold response and cannot be tested")
    none = report_of({"": 0.0}, [None, None])
    assert none.passed_share == 1.0
    assert none.line.startswith("made is not self-testable: none of its 2 rows has a gold response (data.gold_")


def test_a_stated_sample_is_taken_at_equal_distances_from_the_whole_data() -> None:
    assert evenly_spaced(range(10), 5) == [0, 2, 4, 6, 8]
    assert evenly_spaced(range(3), 5) == evenly_spaced(range(3), None) == [0, 1, 2]
    report = report_of({"": 0.0}, ["a"] * 10, max_rows=4)
    assert [check.prompt_id for check in report.checks] == ["made:0", "made:2", "made:5", "made:7"]
    assert report.line == "made: gold and empty answers graded on 4 rows of 10, evenly spaced"


def test_a_function_of_the_users_is_tried_on_fewer_rows_and_only_warned_about() -> None:
    report = report_of({}, ["a"] * 100, is_grader=False, max_rows=None)
    assert len(report.checks) == len(report.warnings) == NUM_FUNCTION_ROWS
    assert (report.failures, report.passed_share) == ([], 1.0)
    assert report.line == f"made: shown to your functions on {NUM_FUNCTION_ROWS} of 100, evenly spaced"
