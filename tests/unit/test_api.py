"""The Python interface has a function for every command, and none that answers without a model loads torch."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import typer

import strop
from strop import api
from strop.cli.main import app
from strop.errors import ConfigError, DataError
from strop.metrics.samples import GroupRecord, SampleQuery, SampleRecord, SampleStore
from support.command import source_environment

OTHER_NAMES = {"eval": "evaluate", "config": "describe_config", "bench": "bench_step"}


def test_every_command_has_its_function() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {OTHER_NAMES.get(name, name) for name in commands} <= set(api.__all__)


def test_strop_offers_the_functions_of_the_api_and_nothing_else() -> None:
    assert all(getattr(strop, name) is getattr(api, name) for name in api.__all__)
    assert set(api.__all__) <= set(dir(strop))
    public = {name for name in dir(strop) if not name.startswith("_")}
    assert all(isinstance(getattr(strop, name), ModuleType) for name in public - set(api.__all__))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        strop.trian  # noqa: B018


def test_an_export_into_a_folder_that_holds_something_is_refused_before_anything_loads(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    code = (
        "import sys, strop\n"
        "from pathlib import Path\n"
        "from strop.errors import ModelError\n"
        "for name in ('full', 'full/file'):\n"
        "    try:\n"
        "        strop.export(Path('absent'), None, Path(name))\n"
        "    except ModelError as error:\n"
        "        assert f'must be new or empty, got {name}' in str(error)\n"
        "    else:\n"
        "        sys.exit('not refused')\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=source_environment(), cwd=tmp_path, check=True)


def test_what_needs_no_model_imports_no_torch(tmp_path: Path) -> None:
    write_samples(tmp_path)
    code = (
        "import sys, strop\n"
        "from pathlib import Path\n"
        "strop.describe_config('run')\n"
        "next(strop.grade([{'scorer': 'gsm8k', 'response': '#### 4', 'gold': '4'}]))\n"
        f"next(strop.doctor()), next(strop.samples(Path({str(tmp_path)!r})))\n"
        "assert not {'torch', 'transformers', 'typer'} & set(sys.modules), 'heavy'\n"
    )
    subprocess.run([sys.executable, "-c", code], env=source_environment(), check=True, timeout=60)


def test_keys_are_described_by_name_and_a_wrong_name_is_refused_with_the_nearest() -> None:
    assert [key.key for key in strop.describe_config("run.steps")] == ["run.steps"]
    assert {key.key.partition(".")[0] for key in strop.describe_config()} >= {"run", "model", "rewards[]"}
    with pytest.raises(ConfigError, match=r"run.stepz must be a section or a key") as caught:
        strop.describe_config("run.stepz")
    assert caught.value.remedy == "Did you mean run.steps?"


def test_samples_of_a_run_are_found_by_a_query(tmp_path: Path) -> None:
    write_samples(tmp_path)
    assert [(found.step, found.sample.index) for found in strop.samples(tmp_path)] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    solved = strop.samples(tmp_path, SampleQuery(step=2, minimum_reward=1.0))
    assert [(found.step, found.sample.index) for found in solved] == [(2, 1)]
    with pytest.raises(DataError, match="must be the folder of a run with samples"):
        strop.samples(tmp_path / "nothing")


def test_rows_are_graded_from_objects_as_from_a_file(tmp_path: Path) -> None:
    loose = {"scorer": "gsm8k", "response": "it is 42", "gold": "42"}
    rows = [{**loose, "response": "#### 42", "score": 1}, loose]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for given in (rows, tmp_path / "rows.jsonl"):
        assert [verdict.score for _, verdict in strop.grade(given)] == [1.0, 0.0]
        assert [verdict.score for _, verdict in strop.grade(given, lenient=True)] == [1.0, 1.0]
        assert next(strop.grade(given))[0].score == 1
        with pytest.raises(DataError, match=r"(row|line) 2: score must be a number"):
            list(strop.grade(given, need_score=True))


def write_samples(run_folder: Path) -> None:
    samples = tuple(SampleRecord(index, "stopped", float(index), "four", (), {}, None) for index in (0, 1))
    for step in (1, 2):
        group = GroupRecord("a", 0, "2 + 2?", np.array([1]), samples, "sums", True)
        SampleStore(run_folder / "samples").write(step, [group])
