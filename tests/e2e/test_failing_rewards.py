"""A reward that fails makes samples invalid and counted, never a 0; a run that can judge nothing ends as failed."""

from pathlib import Path
from typing import Any

import pytest

from strop.config.load import load_config
from support.effect import BASE
from support.evidence import Evidence, override, train_run
from support.run_world import make_world

FUNCTIONS = '''
import threading


def _value(completion):
    """From 0.5 to 1, so that a 0 among the rewards would be seen."""
    return 0.5 + (sum(completion.encode()) % 11) / 20


def good(completion):
    return _value(completion)


def none(completion):
    return None


def text(completion):
    return "good"


def not_a_number(completion):
    return float("nan")


def raising(completion):
    raise KeyError("no such word")


def hanging(completion):
    threading.Event().wait()


async def hanging_async(completion):
    import asyncio

    await asyncio.Event().wait()


def too_few(completions):
    return [_value(text) for text in completions][1:]


def one_number(completions):
    return 0.5


def sometimes_raising(completion, answer):
    """Fails on every other row."""
    if int(answer) % 4:
        raise ValueError(f"odd row {answer}")
    return _value(completion)
'''
ALWAYS_INVALID = {
    "text": "must return a number or None, got str 'good'",
    "not_a_number": "must return a finite number, got nan",
    "raising": "KeyError: 'no such word'",
    "hanging": "must return within 0.05 seconds, and did not",
    "hanging_async": "must return within 0.05 seconds, and did not",
    "too_few": "must return one reward a sample (2), got 1",
    "one_number": "must return a list with one reward a sample, got float 0.5",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("world"))
    (folder / "mine.py").write_text(FUNCTIONS)
    return folder


def run(world: Path, tmp_path: Path, function: str, *overrides: str) -> Evidence:
    mine = ["rewards.0.function=WORLD/mine.py:" + function, f"run.output_dir={tmp_path}", "data.shuffle=false"]
    return train_run(load_config(None, override([*BASE, *mine, *overrides], world)))


def rewards(evidence: Evidence) -> list[Any]:
    return [sample.reward for _, sample in evidence.samples]


@pytest.mark.parametrize("function", ALWAYS_INVALID)
def test_a_run_that_could_judge_nothing_keeps_its_samples_as_invalid_and_fails(
    function: str, world: Path, tmp_path: Path
) -> None:
    evidence = run(world, tmp_path, function, "rewards.0.timeout_seconds=0.05")
    assert "got no valid reward in 2 steps; the first error: " in evidence.error
    assert ALWAYS_INVALID[function] in evidence.error
    assert [line["step"] for line in evidence.metrics] == [0, 1, 2]
    assert set(rewards(evidence)) == {None}
    assert evidence.at(1, "samples/error_share") == 1
    assert evidence.at(1, "reward/mean") is None
    assert evidence.at(1, "update/applied") == 0
    parts = [part for _, sample in evidence.samples for part in sample.parts.values()]
    assert all(ALWAYS_INVALID[function] in str(part.error) for part in parts)
    assert all("prompt rows.jsonl:" in str(part.error) for part in parts)


@pytest.mark.parametrize("function", ALWAYS_INVALID)
def test_a_warning_names_the_first_error_where_no_reward_is_valid(function: str, world: Path, tmp_path: Path) -> None:
    evidence = run(world, tmp_path, function, "rewards.0.timeout_seconds=0.05", "run.steps=1")
    warning = next(
        line for line in evidence.console.splitlines() if "no sample of this step has a valid reward" in line
    )
    assert warning.startswith("warning: ")
    assert ALWAYS_INVALID[function] in warning
    assert "prompt rows.jsonl:0" in warning


def test_a_reward_of_none_is_invalid_without_being_an_error_of_the_function(world: Path, tmp_path: Path) -> None:
    evidence = run(world, tmp_path, "none", "run.steps=1")
    assert set(rewards(evidence)) == {None}
    assert "no sample of this step has a valid reward" in evidence.console
    assert "none raised an error: the rewards were None" in evidence.error


def test_a_run_ends_after_three_steps_in_a_row_that_nothing_could_judge(world: Path, tmp_path: Path) -> None:
    evidence = run(world, tmp_path, "raising", "run.steps=9")
    assert [line["step"] for line in evidence.metrics] == [0, 1, 2, 3]
    assert "got no valid reward in 3 steps" in evidence.error


def test_steps_that_nothing_could_judge_may_come_between_others(world: Path, tmp_path: Path) -> None:
    evidence = run(world, tmp_path, "sometimes_raising", "run.steps=4", "rollout.prompts_per_step=1")
    assert [evidence.at(step, "samples/error_share") for step in (1, 2, 3, 4)] == [0, 1, 0, 1]
    assert evidence.error == ""


@pytest.mark.parametrize("function", ["text", "raising", "hanging", "too_few"])
def test_a_reward_that_fails_in_every_call_of_the_self_test_is_refused(
    function: str, world: Path, tmp_path: Path
) -> None:
    evidence = run(world, tmp_path, function, "rewards.0.timeout_seconds=0.05", "data.answer_column=answer")
    assert evidence.error.startswith(f"reward '{function}' failed in all 6 calls of the self-test, the first: ")
    assert ALWAYS_INVALID[function] in evidence.error
    assert not (tmp_path / "run").exists()


def test_valid_samples_count_as_if_the_invalid_ones_were_not_there(world: Path, tmp_path: Path) -> None:
    good = run(world, tmp_path / "good", "good", "run.steps=1")
    mixed = run(world, tmp_path / "mixed", "sometimes_raising", "run.steps=1")
    assert mixed.at(1, "samples/error_share") == 0.5
    assert rewards(mixed) == [*rewards(good)[:2], None, None]
    assert mixed.at(1, "reward/mean") == pytest.approx(sum(rewards(good)[:2]) / 2)
    assert "no sample of this step has a valid reward" not in mixed.console
    assert " 50% " in mixed.console


def test_an_invalid_reward_that_bears_no_weight_spoils_nothing(world: Path, tmp_path: Path) -> None:
    watching = ["rewards.1.function=WORLD/mine.py:raising", "rewards.1.weight=0"]
    evidence = run(world, tmp_path, "good", "run.steps=1", *override(watching, world))
    assert None not in rewards(evidence)
    assert evidence.at(1, "samples/error_share") == 0
