"""Reading data: which rewards the rows of a part earn, and what an error about a part names."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from strop.config.data import DataConfig, Source
from strop.config.load import load_config
from strop.config.rewards import RewardConfig
from strop.data import ChatRenderer, DataError
from strop.records import FinishState, Group, Sample
from strop.trainers.reader import DataReader
from support.tokenizer import tiny_tokenizer

REWARDS = "def brevity(completion):\n    return 1 / len(completion)\n\n\ndef asked(completion, hint):\n    return 1.0\n"
SUM = {"question": "One and one?", "answer": "#### 2"}
ESSAY = {"prompt": "Write.", "hint": "short"}


def made_reader(folder: Path, parts: list[dict[str, Any]], *rewards: dict[str, Any]) -> tuple[DataReader, Source]:
    """A reader of a mixture; the rows of its parts are written, and named after them."""
    (folder / "mine.py").write_text(REWARDS)
    for part in parts:
        path = folder / f"{part['name']}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in part.pop("rows")))
        part["source"] = {"type": "jsonl", "path": str(path)}
    data = DataConfig.model_validate({"source": {"type": "mixture", "parts": parts}})
    configs = [
        RewardConfig(**{**one, "function": one["function"].replace("mine.py", f"{folder}/mine.py")}) for one in rewards
    ]
    return DataReader(data, configs, ChatRenderer(tiny_tokenizer())), data.source


def test_each_part_is_judged_by_the_rewards_that_name_it(tmp_path: Path) -> None:
    reader, source = made_reader(
        tmp_path,
        [{"name": "sums", "task": "gsm8k", "rows": [SUM]}, {"name": "essays", "task": "columns", "rows": [ESSAY]}],
        {"function": "task", "sources": ["sums"]},
        {"function": "mine.py:asked", "sources": ["essays"]},
        {"function": "mine.py:brevity", "weight": 0.5},
    )
    table, _ = reader.read(source, None, None)
    names = {prompt.source: [reward.name for reward in reader.tasks[prompt.task].rewards] for prompt in table.prompts()}
    assert names == {"sums": ["gsm8k", "brevity"], "essays": ["asked", "brevity"]}


def test_two_parts_of_one_task_may_have_rewards_of_their_own(tmp_path: Path) -> None:
    parts = [{"name": name, "task": "gsm8k", "rows": [SUM]} for name in ("short", "long")]
    short = {"function": "mine.py:brevity", "sources": ["short"]}
    reader, source = made_reader(tmp_path, parts, {"function": "task", "sources": ["long"]}, short)
    table, _ = reader.read(source, None, None)

    async def judged(source_name: str) -> float | None:
        prompt = next(prompt for prompt in table.prompts() if prompt.source == source_name)
        group = Group(prompt, (Sample(index=0, rows=(), finish=FinishState.STOPPED),))
        [reward] = reader.tasks[prompt.task].rewards
        [part] = await reward.function(group, ["#### 2"])
        return part.value

    assert [asyncio.run(judged(name)) for name in ("short", "long")] == [1 / 6, 1.0]


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ({"answer_column": "gold"}, "data.source.parts[1].answer_column must name a column of the data, got 'gold'"),
        ({"prompt_column": "ask"}, "data.source.parts[1].prompt_column must name a column of the data, got 'ask'"),
        ({}, "data.source.parts[1].answer_column must name a column of the data, got 'answer'"),
        ({}, "Check data.source.parts[1].task and the columns it reads"),
    ],
)
def test_an_error_about_the_columns_of_a_part_names_the_part(tmp_path: Path, part: dict[str, str], key: str) -> None:
    broken = {"name": "other", "task": "gsm8k", "rows": [{"question": "?"}], **part}
    sums = {"name": "sums", "task": "gsm8k", "rows": [SUM]}
    reader, source = made_reader(tmp_path, [sums, broken], {"function": "task"})
    with pytest.raises(ValueError, match="1 of 1 rows of other cannot be used") as caught:
        reader.read(source, None, None)
    assert key in str(caught.value)


def test_a_reward_that_needs_a_column_which_a_part_lacks_is_told_with_the_part(tmp_path: Path) -> None:
    parts = [{"name": "essays", "task": "columns", "rows": [ESSAY]}, {"name": "sums", "task": "columns", "rows": [SUM]}]
    reader, source = made_reader(tmp_path, parts, {"function": "mine.py:asked"})
    with pytest.raises(
        ValueError, match=r"data\.source\.parts\[1\] \(sums\): reward 'asked' needs the argument 'hint'"
    ):
        reader.read(source, None, None)


def test_the_held_out_source_is_named_by_its_own_key(tmp_path: Path) -> None:
    reader, source = made_reader(
        tmp_path, [{"name": "sums", "task": "gsm8k", "rows": [{"question": "?"}]}], {"function": "task"}
    )
    with pytest.raises(ValueError, match=r"evaluation\.source\.parts\[0\]\.answer_column must name"):
        reader.read(source, None, None, "evaluation.source")


def test_the_config_without_a_mixture_keeps_the_plain_key(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "?"}\n')
    settings = ["model.path=m", "data.task=gsm8k", f"data.source={{type='jsonl', path='{tmp_path}/rows.jsonl'}}"]
    config = load_config(None, settings)
    reader = DataReader(config.data, config.rewards, ChatRenderer(tiny_tokenizer()))
    with pytest.raises(ValueError, match=r": data\.answer_column must name a column"):
        reader.read(config.data.source, None, None)


UNREADABLE: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "choice": ({}, "B", "AB"),
    "numeric": ({}, "5", "five"),
    "regex": ({}, "a+", "a("),
    "json_schema": ({}, {"type": "object"}, {"type": 7}),
    "exact": ({"alternatives": True}, ["a", "b"], "a"),
    "f1": ({"alternatives": True}, ["a"], ["a", ""]),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_gold_answer_that_the_grader_cannot_read_is_a_bad_row_with_its_line(tmp_path: Path, name: str) -> None:
    arguments, right, wrong = UNREADABLE[name]
    rows = [{"question": f"What is {gold}?", "answer": gold} for gold in (right, right, wrong)]
    check_bad_row(tmp_path, name, rows, arguments, "")


def test_a_mode_of_a_row_that_does_not_exist_is_a_bad_row_with_its_line(tmp_path: Path) -> None:
    rows = [{"question": "?", "answer": "5", "grading_mode": mode} for mode in ("strict", None, "loose")]
    check_bad_row(tmp_path, "numeric", rows, {}, "must hold one of strict, lenient, got 'loose'")


def check_bad_row(folder: Path, name: str, rows: list[dict[str, Any]], arguments: dict[str, Any], reason: str) -> None:
    """The last of the rows is refused, or skipped where that is asked for, by its line."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for policy in ("error", "skip"):
        data = DataConfig.model_validate(
            {"source": {"type": "jsonl", "path": str(file)}, "task": name, "on_bad_row": policy}
        )
        reward = RewardConfig(function="task", arguments=arguments)
        reader = DataReader(data, [reward], ChatRenderer(tiny_tokenizer()))
        if policy == "error":
            with pytest.raises(DataError, match="1 of 3 rows") as caught:
                reader.read(data.source, None, None)
            assert f"{file}, line 3: " in str(caught.value)
            assert reason in str(caught.value)
        else:
            table, report = reader.read(data.source, None, None)
            assert [row.row.row_id for row in table.rows] == ["rows.jsonl:0", "rows.jsonl:1"]
            assert report.num_bad == 1
            assert f"{file}, line 3: " in "\n".join(report.lines())
