"""Grading a file: rows are answered in order, and one that hangs, or takes too much memory, ends it with its place."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strop.errors import DataError
from strop.tasks.grade_isolated import grade_rows
from strop.tasks.isolation.limits import CallLimits

RIGHT = {"scorer": "gsm8k", "response": "#### 4", "gold": "4"}
ENDLESS = {"scorer": "regex", "response": "a" * 90 + "!", "gold": "(a|aa)+", "arguments": {"timeout_seconds": 60}}


def collected(rows: Any, **settings: Any) -> tuple[list[float], str]:
    """The scores before an error, and the error."""
    scores = []
    try:
        for _, grade in grade_rows(rows, **settings):
            scores.append(grade.score)
    except DataError as error:
        return scores, str(error)
    return scores, ""


def test_answers_come_in_the_order_of_the_rows_over_many_batches() -> None:
    rows = [{**RIGHT, "response": f"#### {number % 7}"} for number in range(3000)]
    scores, error = collected(rows)
    assert error == ""
    assert scores == [float(number % 7 == 4) for number in range(3000)]


@pytest.mark.parametrize("num_before", [0, 3, 1024, 1500])
def test_rows_before_one_that_cannot_be_read_or_graded_are_answered(num_before: int) -> None:
    unreadable = collected([*[RIGHT] * num_before, {**RIGHT, "scorer": "gsm"}, RIGHT])
    ungradable = collected([*[RIGHT] * num_before, {**RIGHT, "gold": "no number"}, RIGHT])
    for scores, error in (unreadable, ungradable):
        assert len(scores) == num_before
        assert error.startswith(f"row {num_before + 1}: ")


def test_a_row_that_hangs_is_killed_and_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (RIGHT, ENDLESS, RIGHT)))
    scores, error = collected(path, limits=CallLimits(timeout_seconds=1.0))
    assert scores == [1.0]
    assert error.startswith(f"{path}, line 2: must return within 1 seconds, and did not; it was killed")


def test_a_row_that_needs_too_much_memory_is_named() -> None:
    hungry = {"scorer": "exact", "response": "x" * 2**25, "gold": "x"}
    scores, error = collected([RIGHT, hungry], limits=CallLimits(memory_bytes=2**27))
    assert scores == [1.0]
    assert error.startswith("row 2: ")


def test_rows_are_taken_as_they_are_asked_for() -> None:
    taken = 0

    def endless() -> Iterator[dict[str, str]]:
        nonlocal taken
        while True:
            taken += 1
            yield RIGHT

    answers = grade_rows(endless())
    assert next(answers)[1].score == 1
    assert taken <= 2 * 1024 + 1
    answers.close()
