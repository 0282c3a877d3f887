"""What every Task must do, run on every implementation: a question, a gold answer, and graders that know it."""

import asyncio
from typing import Any

import pytest

from strop.config.data import DataConfig
from strop.data import load_rows
from strop.data.errors import DataError
from strop.records import Prompt
from strop.tasks import QuestionTask, WeightedReward, build_task, score_gold
from support.groups import made_prompt

PATH = {"type": "jsonl", "path": "x"}
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "gsm8k": (
        {"source": PATH},
        [
            {"question": "Two bags hold 9 nuts each. How many?", "answer": "2 * 9 = <<2*9=18>>18\n#### 18"},
            {"question": "How much are 3 at 500?", "answer": "1,500"},
        ],
    ),
    "math": (
        {"source": PATH},
        [
            {"problem": "Half of three?", "answer": r"\frac{3}{2}"},
            {"problem": "Solve x^2 = 9.", "solution": r"Both signs work: \boxed{x = 3, x = -3}."},
            {"problem": "Where is x < 2?", "answer": r"(-\infty, 2)"},
        ],
    ),
    "columns": ({"source": PATH, "answer_column": "gold"}, [{"prompt": "Say yes.", "gold": "yes"}]),
    "reasoning_gym:chain_sum": ({"source": PATH}, []),
    "reasoning_gym:leg_counting": ({"source": PATH}, []),
}


def made_config(task: str, **settings: Any) -> DataConfig:
    return DataConfig.model_validate({**CASES[task][0], "task": task, **settings})


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[QuestionTask, list[dict[str, Any]]]:
    name = request.param
    rows = CASES[name][1]
    if not rows:
        source = {"type": "reasoning_gym", "name": name.partition(":")[2], "size": 5}
        rows = [dict(row.columns) for row in load_rows(made_config(name, source=source).source)]
    return build_task(name, made_config(name)), rows


def test_messages_end_with_a_user_turn_that_holds_the_question(case: tuple[QuestionTask, list[dict[str, Any]]]) -> None:
    task, rows = case
    for row in rows:
        turn = task.messages(row)[-1]
        question = next(row[column] for column in ("question", "problem", "prompt") if column in row)
        assert turn["role"] == "user"
        assert turn["content"].startswith(question)


def test_a_missing_column_is_a_key_error_that_lists_the_columns(
    case: tuple[QuestionTask, list[dict[str, Any]]],
) -> None:
    task, _ = case
    with pytest.raises(KeyError, match="columns found: questions"):
        task.messages({"questions": "?"})


def test_gold_answers_score_one_and_empty_answers_zero(case: tuple[QuestionTask, list[dict[str, Any]]]) -> None:
    task, rows = case
    rewards = [WeightedReward(reward, reward.name, is_task_grader=True) for reward in task.rewards]
    prompts: list[Prompt] = [made_prompt(f"made:{index}", **row) for index, row in enumerate(rows)]
    report = asyncio.run(score_gold(task, rewards, prompts))
    assert report.failures == []
    assert len(report.checks) == len(rows) * len(rewards)
    assert report.num_without_gold == 0


@pytest.mark.parametrize("missing", [None, "", " ", float("nan"), {"a": 1}])
def test_a_gold_answer_that_is_none_is_an_error_unless_the_rows_may_lack_one(
    case: tuple[QuestionTask, list[dict[str, Any]]], missing: Any
) -> None:
    task, rows = case
    gold_columns = {"answer", "solution", "gold"}
    row = {name: missing if name in gold_columns else value for name, value in rows[0].items()}
    if missing is None and task.name.startswith("reasoning_gym"):
        assert task.render_gold(row) is None
        return
    with pytest.raises(ValueError, match="must hold a gold answer, a text or a finite number"):
        task.render_gold(row)


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"got 'gsm8' \(did you mean 'gsm8k'\?\)"):
        build_task("gsm8", made_config("gsm8k"))
    with pytest.raises(DataError, match=r"got 'chain_sumo' \(did you mean 'chain_sum'\?\)"):
        build_task("reasoning_gym:chain_sumo", made_config("gsm8k"))
