"""`strop samples` finds stored samples and shows them to a person or a program."""

import json
from pathlib import Path

import numpy as np
import pytest

from strop.cli.samples import parse_span, samples
from strop.config.load import dump_config, load_config
from strop.errors import ConfigError, DataError
from strop.metrics.samples import GroupRecord, PartRecord, RowRecord, SampleRecord, SampleStore
from support.command import heavy_imports, run_strop
from support.tiny import tiny_folder
from support.tokenizer import tiny_tokenizer


def num_tokens(text: str) -> int:
    return len(tiny_tokenizer().encode(text))


def make_sample(index: int, reward: float | None, finish: str, text: str) -> SampleRecord:
    token_ids = np.array([1, 2, *tiny_tokenizer().encode(text)])
    mask = np.arange(len(token_ids)) >= 2
    row = RowRecord(
        token_ids, mask, np.where(mask, np.float32(-0.25), np.float32(0)), np.where(mask, 7, -1).astype(np.int64)
    )
    parts = {"right": PartRecord(reward), "short": PartRecord(0.5)}
    error = "ZeroDivisionError in reward" if reward is None else None
    return SampleRecord(index, finish, reward, text, (row,), parts, error)


def make_group(prompt_id: str, *samples: SampleRecord, trained: bool = True) -> GroupRecord:
    return GroupRecord(prompt_id, 0, f"Question of\n{prompt_id}?", np.array([1, 2]), samples, "sums", trained)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    store = SampleStore(tmp_path / "run" / "samples")
    first = make_group("a", make_sample(0, 1.0, "stopped", "four"), make_sample(1, 0.0, "length", "five"))
    store.write(1, [first])
    store.write(2, [first, make_group("b", make_sample(0, 0.5, "stopped", "six"), trained=False)])
    store.write(3, [make_group("b", make_sample(0, None, "failed", "seven"), make_sample(1, 1.0, "stopped", "eight"))])
    return tmp_path / "run"


def listed(capsys: pytest.CaptureFixture[str], run_folder: Path, **options: object) -> list[tuple[int, str, int]]:
    samples(run_folder, as_json=True, **options)  # type: ignore[arg-type]
    objects = map(json.loads, capsys.readouterr().out.splitlines())
    return [(item["step"], item["prompt_id"], item["index"]) for item in objects]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(3, "b", 0), (3, "b", 1)]),
        ({"step": "1"}, [(1, "a", 0), (1, "a", 1)]),
        ({"step": "2:", "prompt": "b"}, [(2, "b", 0), (3, "b", 0), (3, "b", 1)]),
        ({"step": ":2", "reward": "1"}, [(1, "a", 0), (2, "a", 0)]),
        ({"step": "all", "reward": "0.5:"}, [(1, "a", 0), (2, "a", 0), (2, "b", 0), (3, "b", 1)]),
        ({"step": "all", "reward": "none"}, [(3, "b", 0)]),
        ({"step": "all", "finish": "length"}, [(1, "a", 1), (2, "a", 1)]),
        ({"step": "all", "limit": 3}, [(1, "a", 0), (1, "a", 1), (2, "a", 0)]),
        ({"step": "all", "prompt": "c"}, []),
    ],
)
def test_samples_are_found_by_step_prompt_reward_and_finish(
    run_folder: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, object],
    expected: list[tuple[int, str, int]],
) -> None:
    assert listed(capsys, run_folder, **options) == expected


def test_a_listing_shows_each_prompt_once_above_its_samples(run_folder: Path) -> None:
    result = run_strop("samples", str(run_folder), "--step", "2")
    assert result.returncode == 0
    assert result.stdout.split("\n") == [
        "",
        "step 2, prompt a, visit 0, task sums",
        "  | Question of",
        "  | a?",
        f"  [0] reward 1, right 1, short 0.5, stopped, {num_tokens('four')} tokens",
        "      four",
        f"  [1] reward 0, right 0, short 0.5, length, {num_tokens('five')} tokens",
        "      five",
        "",
        "step 2, prompt b, visit 0, task sums, left out of training",
        "  | Question of",
        "  | b?",
        f"  [0] reward 0.5, right 0.5, short 0.5, stopped, {num_tokens('six')} tokens",
        "      six",
        "",
    ]


def test_an_invalid_sample_shows_its_error_and_no_reward(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples(run_folder, reward="none")
    listing = capsys.readouterr().out
    assert "reward none, right none" in listing
    assert "! ZeroDivisionError in reward" in listing


def test_it_says_when_there_is_more_or_nothing(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples(run_folder, limit=1)
    assert "there are more than 1" in capsys.readouterr().err
    samples(run_folder, limit=2)
    assert capsys.readouterr().err == ""
    samples(run_folder, prompt="c")
    assert "no sample fits; steps 1 to 3 are kept" in capsys.readouterr().err


def test_tokens_are_shown_with_text_log_prob_and_version(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_folder(tmp_path / "model")
    config = load_config(None, [f"model.path={model}", "data.task=math", "data.source={type='jsonl', path='x'}"])
    (run_folder / "config.toml").write_text(dump_config(config))
    samples(run_folder, step="1", limit=1, tokens=True, as_json=True)
    ((*tokens,),) = json.loads(capsys.readouterr().out)["tokens"]
    assert "".join(token["text"] for token in tokens) == "four"
    assert {token["logprob"] for token in tokens} == {-0.25}
    assert {token["version"] for token in tokens} == {7}
    samples(run_folder, step="1", limit=1, tokens=True)
    assert f"-0.2500        7  {tokens[0]['text']!r}" in capsys.readouterr().out


def test_tokens_are_shown_as_ids_where_the_model_is_gone(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(None, ["model.path=/gone", "data.task=math", "data.source={type='jsonl', path='x'}"])
    (run_folder / "config.toml").write_text(dump_config(config))
    samples(run_folder, step="1", limit=1, tokens=True, as_json=True)
    output = capsys.readouterr()
    assert "tokens are shown without their text" in output.err
    assert [token["id"] for token in json.loads(output.out)["tokens"][0]] == tiny_tokenizer().encode("four")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"step": "x"}, "--step must be last, all"),
        ({"reward": "high"}, "--reward must be a number"),
        ({"finish": "done"}, "--finish must be one of stopped, length, aborted, failed, got 'done'"),
    ],
)
def test_a_wrong_option_is_refused(run_folder: Path, options: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        samples(run_folder, **options)  # type: ignore[arg-type]


def test_a_step_that_is_not_kept_is_an_error(run_folder: Path) -> None:
    with pytest.raises(DataError, match="got steps 1 to 3"):
        samples(run_folder, step="9")


def test_a_folder_without_samples_is_an_error_with_exit_code_2(tmp_path: Path) -> None:
    result = run_strop("samples", str(tmp_path))
    assert result.returncode == 2
    assert "must be the folder of a run with samples" in result.stderr


@pytest.mark.parametrize(
    ("text", "bounds"), [("3", (3, 3)), ("3:7", (3, 7)), ("3:", (3, None)), (":7", (None, 7)), ("-1:0.5", (-1, 0.5))]
)
def test_a_span_has_two_bounds(text: str, bounds: tuple[float | None, float | None]) -> None:
    assert parse_span(text, "") == bounds


def test_looking_at_samples_imports_nothing_heavy(run_folder: Path) -> None:
    assert heavy_imports("samples", str(run_folder)) == []
