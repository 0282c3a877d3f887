"""The page of offline training agrees with what there is: keys, run files, methods, metrics."""

import re
from pathlib import Path
from typing import get_args

import pytest

from strop.config.checks.offline import OFFLINE_SCORES, offline_refusals
from strop.config.describe import as_markdown, describe
from strop.config.load import load_offline_config
from strop.config.offline import COLUMNS, OfflineMethodName
from support.command import run_strop

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "offline.md").read_text(encoding="utf-8")
RUN_FILES = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
METHODS = get_args(OfflineMethodName)


def test_the_page_of_keys_is_up_to_date() -> None:
    page = (DOCS / "offline_config.md").read_text(encoding="utf-8")
    assert page == as_markdown(describe(offline=True), offline=True) + "\n", "run `make docs`"


@pytest.mark.parametrize("text", RUN_FILES)
def test_every_run_file_of_the_page_is_accepted(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    config = load_offline_config(tmp_path / "run.toml", method=None if "[offline]" in text else "sft")
    assert list(offline_refusals(config)) == []


def test_every_method_has_a_command_and_a_row_with_its_file() -> None:
    assert len(RUN_FILES) == 3
    assert re.findall(r"^\| `strop (\w+) RUN", PAGE, flags=re.MULTILINE) == list(METHODS)
    assert re.findall(r"^\| `\w+` \| .*\| \[(\w+)\.py\]", PAGE, flags=re.MULTILINE) == list(METHODS)


def test_every_column_and_every_score_is_named() -> None:
    scores = {name.removeprefix("eval/") for names in OFFLINE_SCORES.values() for name in names} - {"loss"}
    for name in (*COLUMNS, *scores):
        assert f"`{name}`" in PAGE or f"`eval/{name}`" in PAGE, name


@pytest.mark.parametrize("method", METHODS)
def test_a_command_says_which_columns_it_reads(method: str) -> None:
    told = run_strop(method, "--help").stdout
    assert "strop config --offline" in told.replace("\n", " ")
    assert "Rows have `" in told
