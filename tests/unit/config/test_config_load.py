"""A run file and overrides become a Config, or one error that names every problem."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strop.config.checks import refusals
from strop.config.describe import describe
from strop.config.load import dump_config, load_config
from strop.config.root import Config
from strop.config.tree import ELSEWHERE
from strop.errors import ConfigError
from support.command import source_environment

MINIMAL = """
[model]
path = "some/model"
[data]
task = "gsm8k"
[data.source]
type = "jsonl"
path = "rows.jsonl"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_file(text: str) -> Path:
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write_file


def problems(path: Path | None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def test_a_minimal_file_takes_every_default(write: Callable[[str], Path]) -> None:
    config = load_config(write(MINIMAL))
    assert config.model.path == "some/model"
    assert config.data.source.path == Path("rows.jsonl")
    assert config.rollout.group_size == 8
    assert [reward.function for reward in config.rewards] == ["task"]
    assert config.evaluation is None


def test_an_unknown_key_is_refused_with_the_nearest_name(write: Callable[[str], Path]) -> None:
    message = problems(write(MINIMAL + "[training]\nlearning_rat = 1e-5"))
    assert "training.learning_rat is not a key; did you mean training.learning_rate?" in message


def test_a_key_in_the_wrong_section_is_pointed_to_the_right_one(write: Callable[[str], Path]) -> None:
    message = problems(write(MINIMAL + "[run]\nlearning_rate = 1e-5"))
    assert "run.learning_rate is not a key; did you mean training.learning_rate?" in message


def test_the_names_of_other_libraries_point_to_keys_that_exist() -> None:
    known = {description.key.replace("[]", "[0]") for description in describe()}
    assert set(ELSEWHERE.values()) <= known


@pytest.mark.parametrize("name", ["training.lr", "algorithm.beta", "rollout.max_completion_length"])
def test_a_key_by_the_name_of_another_library_is_pointed_to_ours(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not a key; did you mean {ELSEWHERE[name.split('.')[1]]}"):
        load_config(None, [f"{name}=1"])


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ('[model]\npath="m"\n[data]\ntask="math"\nsource={type="hub", pth="x"}', "data.source.pth", "data.source.path"),
        (MINIMAL + "[[rewards]]\nfunction='task'\nwieght = 2", "rewards[0].wieght", "rewards[0].weight"),
        (MINIMAL + "[model.lora]\nranc = 2", "model.lora.ranc", "model.lora.rank"),
        (MINIMAL + "[trainin]\nbeta1 = 0.5", "trainin", "training"),
    ],
)
def test_unknown_keys_are_found_in_unions_lists_and_nested_tables(
    write: Callable[[str], Path], text: str, key: str, nearest: str
) -> None:
    assert f"{key} is not a key; did you mean {nearest}?" in problems(write(text))


def test_all_problems_of_a_file_are_reported_at_once(write: Callable[[str], Path]) -> None:
    message = problems(
        write("[run]\nsteps = 'many'\n[data]\nshufle = true\n[model]\npath = 'x'\ndtype = 'half'\n[training]\nbeta1=3")
    )
    assert "has 5 problems" in message
    assert "run.steps must be a whole number, at least 0, got 'many'" in message
    assert "data.shufle is not a key; did you mean data.shuffle?" in message
    assert "model.dtype must be one of float32, bfloat16, got 'half'" in message
    assert "training.beta1 must be a number, at least 0 and below 1, got 3" in message
    assert "data.source is required" in message


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("run.steps=3.0", "run.steps must be a whole number, at least 0, got 3.0"),
        ("run.steps='3'", "run.steps must be a whole number, at least 0, got '3'"),
        ("run.steps=true", "run.steps must be a whole number, at least 0, got true"),
        ("data.shuffle=1", "data.shuffle must be true or false, got 1"),
        ("training.learning_rate=nan", "training.learning_rate must be a number, above 0, got nan"),
        ("training.learning_rate=inf", "training.learning_rate must be a number, above 0, got inf"),
        ("rollout.stop_token_ids=[1,'a']", "rollout.stop_token_ids[1] must be a whole number, got 'a'"),
        ("rewards=3", "rewards must be a list of tables ([[rewards]]), got 3"),
        ("rewards=[3]", "rewards[0] must be a table, got 3"),
        ("model=3", "model must be a table, got 3"),
        (
            "data.source.type=parque",
            "data.source.type must be one of jsonl, parquet, hub, reasoning_gym, mixture, got parque",
        ),
        ("model.lora={target_modules=5}", "model.lora.target_modules must be a list of texts or all-linear, got 5"),
    ],
)
def test_a_value_of_the_wrong_kind_says_what_must_be_and_what_was_got(
    write: Callable[[str], Path], override: str, expected: Any
) -> None:
    assert expected in problems(write(MINIMAL), override)


def test_a_source_without_its_type_is_one_problem(write: Callable[[str], Path]) -> None:
    message = problems(write('[model]\npath="m"\n[data]\ntask="math"\n[data.source]\npath="x"'))
    assert "has 1 problem" in message
    assert "data.source.type must be one of jsonl, parquet, hub, reasoning_gym, mixture, got nothing" in message


def test_broken_toml_is_reported_with_its_line(write: Callable[[str], Path]) -> None:
    assert "line 3" in problems(write("[run]\nsteps = 3\nname = = 4\n"))


def test_a_missing_file_is_reported_with_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "no.toml") in problems(Path("no.toml"))


def test_a_folder_or_binary_file_is_refused(tmp_path: Path) -> None:
    assert "a folder" in problems(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"a = '\xff'")
    assert "UTF-8" in problems(tmp_path / "b.toml")


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("training.learning_rate=1e-5", lambda c: c.training.learning_rate, 1e-5),
        ("run.name=my-run", lambda c: c.run.name, "my-run"),
        ("run.name=2026", lambda c: c.run.name, "2026"),
        ("run.name=1e5", lambda c: c.run.name, "1e5"),
        ("run.name=true", lambda c: c.run.name, "true"),
        ("run.name='quoted'", lambda c: c.run.name, "quoted"),
        ("run.name=a=b", lambda c: c.run.name, "a=b"),
        ("run.name=x # y", lambda c: c.run.name, "x # y"),
        ("run.output_dir=some/where", lambda c: c.run.output_dir, Path("some/where")),
        ("data.instruction=", lambda c: c.data.instruction, ""),
        ("data.shuffle=false", lambda c: c.data.shuffle, False),
        ("model.lora.rank=8", lambda c: c.model.lora.rank, 8),
        ("rewards.0.weight=2", lambda c: (c.rewards[0].function, c.rewards[0].weight), ("task", 2.0)),
        ("rewards[1].function=f.py:g", lambda c: [r.function for r in c.rewards], ["task", "f.py:g"]),
        ("rollout.stop_strings.0=END", lambda c: c.rollout.stop_strings, ["END"]),
        ("rollout.stop_token_ids=[1, 2]", lambda c: c.rollout.stop_token_ids, [1, 2]),
        ("metrics.sinks=['wandb']", lambda c: c.metrics.sinks, ["wandb"]),
        ("model.lora.target_modules=['q_proj']", lambda c: c.model.lora.target_modules, ["q_proj"]),
        (
            "data.chat_template_kwargs.enable_thinking=false",
            lambda c: c.data.chat_template_kwargs["enable_thinking"],
            False,
        ),
        ("data.source={type='hub', path='a/b'}", lambda c: c.data.source.path, "a/b"),
        ("algorithm.advantage_std=none", lambda c: c.algorithm.advantage_std, "none"),
        ("algorithm.advantage_std=null", lambda c: c.algorithm.advantage_std, None),
    ],
)
def test_an_override_is_read_as_its_key_wants_it(
    write: Callable[[str], Path], override: str, read: Callable[[Config], Any], value: Any
) -> None:
    result = read(load_config(write(MINIMAL), [override]))
    assert result == value
    assert type(result) is type(value)


def test_none_takes_a_value_of_the_file_away(write: Callable[[str], Path]) -> None:
    path = write(MINIMAL + "[model.lora]\nrank = 4\n[evaluation]\nsource={type='jsonl', path='x'}\nlimit = 3")
    config = load_config(path, ["model.lora=none", "evaluation.limit=null"])
    assert config.model.lora is None
    assert config.evaluation.limit is None


def test_later_overrides_win_and_build_on_earlier_ones(write: Callable[[str], Path]) -> None:
    config = load_config(
        write(MINIMAL), ["data.source={type='hub', path='a'}", "data.source.path=b", "run.seed=1", "run.seed=2"]
    )
    assert (config.data.source.path, config.run.seed) == ("b", 2)


def test_a_config_comes_from_overrides_alone() -> None:
    config = load_config(None, ["model.path=m", "data.task=math", "data.source.type=hub", "data.source.path=d"])
    assert config.data.source.type == "hub"


@pytest.mark.parametrize("override", ["steps", "=3", "run.=3", ".steps=3"])
def test_an_override_of_another_form_is_refused(write: Callable[[str], Path], override: str) -> None:
    assert "must have the form section.key=value" in problems(write(MINIMAL), override)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("rewards.3.weight=2", "rewards.3 must name an entry of a list, from 0 to 1"),
        ("rewards.first.weight=2", "got 'first'"),
        ("model.path.x=2", "model.path must be a table to set a key inside it, got 'some/model'"),
        ("data.source={type=", "must be valid TOML"),
        ("run.stepz=3", "run.stepz is not a key; did you mean run.steps?"),
        ("evaluation.samples=4", "evaluation.source is required"),
    ],
)
def test_a_wrong_override_is_refused_with_its_key(write: Callable[[str], Path], override: str, expected: Any) -> None:
    assert expected in problems(write(MINIMAL), override)


def test_relative_paths_stay_relative_to_the_current_directory(
    write: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = write(MINIMAL)
    monkeypatch.chdir(elsewhere)
    assert load_config(path).data.source.path.absolute() == elsewhere / "rows.jsonl"


def test_the_import_of_the_config_package_brings_no_torch() -> None:
    code = (
        "import strop.config.load, strop.config.checks, strop.config.describe, sys;"
        "print([m for m in ('torch', 'numpy', 'transformers', 'datasets') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=source_environment()
    )
    assert result.stdout.strip() == "[]"


def test_a_stored_config_loads_equal(write: Callable[[str], Path]) -> None:
    config = load_config(
        write(MINIMAL),
        [
            "model.lora.rank=4",
            "rewards[1].function=f.py:g",
            "rewards[1].arguments={a=[1, {b='c'}], 'odd key'=2.5, none={}}",
            "evaluation.source={type='reasoning_gym', name='chain_sum', options={min_terms=2}}",
            "evaluation.pass_at=[1]",
            "data.source.path=a b/ü.jsonl",
            'data.system_prompt="two\\nlines \\"quoted\\" \\\\ \\u007f \\u0001"',
            "training.learning_rate=1e-7",
        ],
    )
    assert load_config(write(dump_config(config))) == config


def test_a_stored_config_that_passes_the_checks_passes_them_again(write: Callable[[str], Path]) -> None:
    config = load_config(write(MINIMAL))
    assert refusals(config) == []
    assert refusals(load_config(write(dump_config(config)))) == []


def test_a_table_that_toml_cannot_say_is_refused_with_its_key() -> None:
    config = Config.model_validate(
        {
            "model": {"path": "m"},
            "data": {
                "task": "math",
                "source": {"type": "hub", "path": "d"},
                "chat_template_kwargs": {"thinking": None},
            },
        }
    )
    with pytest.raises(ConfigError, match=r"data\.chat_template_kwargs\.thinking"):
        dump_config(config)


free_values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(arguments=st.dictionaries(st.text(), free_values, max_size=3), text=st.text(), number=st.floats(1e-300, 1e300))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values_survive_storing(tmp_path: Path, arguments: dict[str, Any], text: str, number: float) -> None:
    config = Config.model_validate(
        {
            "model": {"path": text},
            "data": {"task": text, "source": {"type": "hub", "path": text}, "system_prompt": text},
            "rewards": [{"function": text, "arguments": arguments}],
            "training": {"learning_rate": number},
        }
    )
    path = tmp_path / "run.toml"
    path.write_text(dump_config(config), encoding="utf-8", newline="")
    assert load_config(path) == config


def test_any_misspelt_key_is_refused_and_never_ignored(write: Callable[[str], Path]) -> None:
    generator = random.Random(0)
    for description in describe():
        if "[]" in description.key or description.key.startswith(("evaluation.source", "data.source")):
            continue
        section, name = description.key.rsplit(".", 1)
        place = generator.randrange(len(name))
        misspelt = f"{section}.{name[:place]}x{name[place:]}"
        message = problems(write(MINIMAL), f"{misspelt}=1")
        assert f"{misspelt} is not a key; did you mean {description.key}?" in message


@pytest.mark.parametrize("kind", ["jsonl", '"jsonl"', "'jsonl'"])
def test_the_kind_of_a_source_may_be_quoted_on_the_command_line(kind: str) -> None:
    source = [f"data.source.type={kind}", "data.source.path=rows"]
    config = load_config(None, ["model.path=m", "data.task=columns", *source])
    assert config.data.source.type == "jsonl"
