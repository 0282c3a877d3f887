"""Reward models and judges in a run file: read, stored, and refused where they cannot work."""

from pathlib import Path

import pytest

from strop.config.checks import refusals
from strop.config.dump import dump_config
from strop.config.judges import NativeJudge, NumberVerdict, ServerJudge
from strop.config.load import load_config
from strop.errors import ConfigError

BASE = ["model.path=m", "data.task=columns", "data.source={type='jsonl', path='x'}", "rewards.0.function=none"]
MODEL = [*BASE, "rewards.0.model.path=r"]
ENGINE = "rewards.0.judge.engine={type='server', url='http://localhost:1/v1', model='m'}"
NUMBER = "rewards.0.judge.verdict={type='number', pattern='([0-9])', lowest=0, highest=9}"
JUDGE = [*BASE, ENGINE, "rewards.0.judge.rubric=How good is {completion}?", NUMBER]
URL = "rewards.0.judge.engine.url"

RUN_FILE = """
[model]
path = "m"
[data]
task = "columns"
source = { type = "jsonl", path = "x" }
[[rewards]]
name = "liked"
[rewards.model]
path = "owner/reward"
dtype = "bfloat16"
mean = 1.5
[[rewards]]
weight = 0.5
[rewards.judge]
rubric = \"\"\"
{prompt}
{completion}
{{"score": 1}}\"\"\"
verdict = { type = "number", pattern = '(?i)score:\\s*(\\d+)', lowest = 1, highest = 10 }
engine = { type = "server", url = "http://localhost:8000/v1", model = "m", options = { top_p = 0.5 } }
"""


def test_the_plain_forms_are_not_refused() -> None:
    assert refusals(load_config(None, MODEL)) == []
    assert refusals(load_config(None, JUDGE)) == []
    assert refusals(load_config(None, [*JUDGE, "rewards.0.judge.engine={type='native', path='m'}"])) == []


# What is refused, the key that is named, and what takes the refusal away.
CASES = [
    (BASE, "rewards[0]", ["rewards.0.model.path=r"]),
    ([*MODEL, "rewards.0.function=f.py:g"], "rewards[0]", ["rewards.0.function=none"]),
    ([*JUDGE, "rewards.0.model.path=r"], "rewards[0]", ["rewards.0.model=none"]),
    ([*MODEL, "rewards.0.timeout_seconds=5"], "rewards[0].timeout_seconds", ["rewards.0.timeout_seconds=60"]),
    ([*MODEL, "rewards.0.memory_gib=5"], "rewards[0].memory_gib", ["rewards.0.memory_gib=8"]),
    ([*JUDGE, "rewards.0.processes=2"], "rewards[0].processes", ["rewards.0.processes=none"]),
    ([*JUDGE, "rewards.0.arguments.a=2"], "rewards[0].arguments", ["rewards.0.arguments={}"]),
    ([*JUDGE, f"{URL}=localhost:8000"], "rewards[0].judge.engine.url", [f"{URL}=http://localhost:8000"]),
    ([*JUDGE, f"{URL}=http:///v1"], "rewards[0].judge.engine.url", [f"{URL}=https://a/v1"]),
    ([*JUDGE, f"{URL}=http://a:port/v1"], "rewards[0].judge.engine.url", [f"{URL}=http://a:80/v1"]),
    ([*JUDGE, f"{URL}=http://[/v1"], "rewards[0].judge.engine.url", [f"{URL}=https://a/v1"]),
    ([*JUDGE, f"{URL}=http://me:secret@a/v1"], "rewards[0].judge.engine.url", [f"{URL}=http://a/v1"]),
    (
        [*JUDGE, "rewards.0.judge.engine.options.messages=[]"],
        "rewards[0].judge.engine.options",
        ["rewards.0.judge.engine.options={}"],
    ),
    ([*JUDGE, "rewards.0.judge.verdict.lowest=9"], "rewards[0].judge.verdict.highest", [NUMBER]),
    (
        [*MODEL, "rewards.1.model.path=s"],
        "rewards",
        ["rewards.1.name=other"],
    ),
]


@pytest.mark.parametrize(("overrides", "key", "cure"), CASES)
def test_a_refusal_names_its_key_and_goes_with_its_remedy(overrides: list[str], key: str, cure: list[str]) -> None:
    found = refusals(load_config(None, overrides))
    assert [refusal.key for refusal in found] == [key]
    assert found[0].reason
    assert found[0].remedy
    assert refusals(load_config(None, overrides + cure)) == []


def test_a_password_in_an_address_is_refused_without_being_shown() -> None:
    [refusal] = refusals(load_config(None, [*JUDGE, f"{URL}=http://me:hidden-word@a/v1"]))
    assert "hidden-word" not in str(refusal)


def test_a_run_file_with_models_that_judge_is_read_and_stored_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE)
    config = load_config(path)
    assert refusals(config) == []
    liked, asked = config.rewards
    assert liked.model is not None
    assert (liked.own_name, liked.model.dtype, liked.model.mean) == ("liked", "bfloat16", 1.5)
    assert asked.judge is not None
    assert asked.own_name == "judge"
    assert isinstance(asked.judge.engine, ServerJudge)
    assert asked.judge.engine.options == {"top_p": 0.5}
    assert isinstance(asked.judge.verdict, NumberVerdict)
    path.write_text(dump_config(config))
    assert load_config(path) == config


def test_the_kind_of_a_judge_chooses_its_keys() -> None:
    config = load_config(None, [*JUDGE, "rewards.0.judge.engine={type='native', path='m', dtype='bfloat16'}"])
    assert config.rewards[0].judge is not None
    assert isinstance(config.rewards[0].judge.engine, NativeJudge)
    with pytest.raises(ConfigError, match=r"rewards\[0\]\.judge\.engine\.path is not a key"):
        load_config(None, [*JUDGE, "rewards.0.judge.engine.path=m"])
    with pytest.raises(ConfigError, match=r"rewards\[0\]\.judge\.engine\.type must be one of server, native"):
        load_config(None, [*JUDGE, "rewards.0.judge.engine.type=other"])
