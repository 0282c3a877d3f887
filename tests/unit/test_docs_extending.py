"""What docs/extending.md tells a reader to write works as it stands there: files, tests, run files, a real run."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from strop.algorithms.build import build_algorithm
from strop.api import train
from strop.cli.pages.docstrings import as_markdown
from strop.config.bundles import ResolvedAlgorithm
from strop.config.root import Config
from strop.metrics.sinks.jsonl import read_metrics
from support.runs import tiny_run

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


FILES = {block.partition("\n")[0].removeprefix("# "): block for block in blocks("python")}
RUN_FILES = [tomllib.loads(block) for block in blocks("toml")]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader who has saved every file of the page, and works in it."""
    for name, text in FILES.items():
        if "/" not in name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_of(reader: Path, table: dict[str, Any], steps: int = 2) -> list[dict[str, Any]]:
    """Trains a tiny model under the tables of the page, and returns what it measured."""
    sections = {name: value for name, value in table.items() if name != "rewards"}
    config = tiny_run(reader / "runs", run={"steps": steps}, **sections)
    if "rewards" in table:
        config = Config.model_validate(config.model_dump() | {"rewards": table["rewards"]})
    result = train(config)
    return [line for line in read_metrics(result.folder / "metrics.jsonl") if line["step"] > 0]


def run_tests(reader: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """Runs tests of the page as the reader does."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
    return subprocess.run(command, cwd=reader, capture_output=True, text=True, check=False)


def test_the_page_has_a_file_and_a_test_of_each_kind() -> None:
    kinds = ("loss", "advantage", "reward")
    assert {f"my_{kind}.py" for kind in kinds} | {f"test_my_{kind}.py" for kind in kinds} < set(FILES)


def test_the_tests_of_the_page_pass(reader: Path) -> None:
    done = run_tests(reader, *(name for name in FILES if name.startswith("test_")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_tests_of_the_page_can_fail(reader: Path) -> None:
    (reader / "my_loss.py").write_text(FILES["my_loss.py"].replace("clamp(max=1.0)", "clamp(max=1.2)"))
    done = run_tests(reader, "test_my_loss.py")
    assert done.returncode == 1, done.stdout


def test_a_run_trains_with_the_loss_of_the_page(reader: Path) -> None:
    (table,) = [table for table in RUN_FILES if "loss" in table.get("algorithm", {})]
    measured = run_of(reader, table)
    assert len(measured) == 2
    assert any(line["update/clipped_high_share"] > 0 for line in measured), "the bound of the page's loss holds"


def test_a_run_trains_with_the_advantages_of_the_page(reader: Path) -> None:
    (table,) = [table for table in RUN_FILES if "advantage" in table.get("algorithm", {})]
    assert len(run_of(reader, table)) == 2


def test_a_run_is_judged_by_the_reward_of_the_page(reader: Path) -> None:
    (table,) = [table for table in RUN_FILES if "rewards" in table]
    measured = run_of(reader, table, steps=1)
    assert -0.2 < measured[0]["reward/mean"] <= 1


def test_the_named_algorithm_of_the_page_is_one() -> None:
    ((name, text),) = [(name, text) for name, text in FILES.items() if "/" in name]
    found: dict[str, Any] = {}
    exec(compile(text, name, "exec"), found)
    bundle = found["BUNDLE"]
    assert isinstance(bundle, ResolvedAlgorithm)
    assert build_algorithm(bundle).name == Path(name).stem == bundle.name
    assert "**Deviations**" in as_markdown(found["__doc__"])


def test_every_file_and_key_that_the_page_names_is_used_by_a_block() -> None:
    named = {target.partition(":")[0] for table in RUN_FILES for target in re.findall(r"my_\w+\.py:\w+", str(table))}
    assert named == {"my_loss.py", "my_advantage.py", "my_reward.py"}
