"""The pages of algorithms are current, and the table of all names what there is, where it is and what tests it."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from strop.algorithms.advantages.table import ESTIMATORS
from strop.algorithms.losses.table import LOSSES
from strop.cli.pages.__main__ import write_pages
from strop.cli.pages.algorithm import algorithm_page
from strop.cli.pages.docstrings import as_markdown, docstring, named_functions
from strop.config.algorithm import AdvantageName, Aggregation, CorrectionConfig, KlEstimator, LossName
from strop.config.bundles import BUNDLES
from strop.config.checks import refusals
from strop.config.load import load_config

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "algorithms"
INDEX = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")

every_bundle = pytest.mark.parametrize("name", BUNDLES)


def rows_of(heading: str) -> dict[str, str]:
    """The rows of the tables below a heading of the index, by the names in code in their first cell."""
    section = INDEX.partition(f"### {heading}\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (.*?) \|(.*)$", section, flags=re.MULTILINE)
    return {name: rest for first, rest in rows for name in re.findall(r"`([^`]+)`", first)}


def linked(row: str, folder: str) -> list[Path]:
    return [ROOT / target for target in re.findall(rf"\]\(\.\./({folder}/[^)]+)\)", row)]


@every_bundle
def test_the_page_of_a_bundle_is_up_to_date(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == algorithm_page(name), "run `make docs`"


def test_no_page_is_left_over(tmp_path: Path) -> None:
    assert {page.stem for page in FOLDER.iterdir()} == set(BUNDLES)
    (tmp_path / "gone.md").write_text("an algorithm that is no more")
    write_pages(tmp_path)
    assert {page.stem for page in tmp_path.iterdir()} == set(BUNDLES)


@every_bundle
def test_a_page_has_the_settings_with_what_differs_from_grpo_marked(name: str) -> None:
    page, plain = (FOLDER / f"{name}.md").read_text(encoding="utf-8"), BUNDLES["grpo"]
    stated = dict(re.findall(r"^\| `algorithm\.(\w+)` \| (.*?) \|", page, flags=re.MULTILINE))
    assert {"advantage", "loss", "aggregation", "kl_coefficient", "truncated"} < set(stated)
    for key, shown in stated.items():
        value = getattr(BUNDLES[name], key)
        assert shown.startswith("**") == (value != getattr(plain, key)), key
        assert shown.strip("*`").lower() == ("left out" if value is None else str(value).lower()), key


@every_bundle
def test_the_run_file_of_a_page_is_accepted(name: str, tmp_path: Path) -> None:
    (run_file,) = re.findall(r"^```toml\n(.*?)^```$", algorithm_page(name), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "run.toml").write_text(run_file, encoding="utf-8")
    config = load_config(tmp_path / "run.toml")
    assert refusals(config) == []
    assert config.algorithm.name == tomllib.loads(run_file)["algorithm"]["name"] == name


def test_a_page_says_what_the_start_refuses() -> None:
    assert "A KL term in the reward is refused: `algorithm.kl_placement`" in algorithm_page("pass_at_k")
    assert "The correction token-band is refused: `algorithm.correction.token_band`" in algorithm_page("gspo")
    assert "is refused: " not in algorithm_page("grpo")


def test_tables_of_functions_are_read_without_importing_them() -> None:
    assert named_functions("algorithms/advantages/table.py", "ESTIMATORS") == dict(ESTIMATORS)
    assert named_functions("algorithms/losses/table.py", "LOSSES") == dict(LOSSES)
    with pytest.raises(ValueError, match="must have the table ABSENT, got none"):
        named_functions("algorithms/losses/table.py", "ABSENT")


def test_a_docstring_becomes_markdown() -> None:
    text = "Line.\n\n    a = 1\n\n      b\n\nMore.\nSource: X.\nDeviations: none."
    fenced = "Line.\n\n```\na = 1\n\n  b\n```\n\nMore.\n\n**Source**: X.\n\n**Deviations**: none.\n"
    assert as_markdown(text) == fenced


# ------------------------------------------------------------------------------------------ the table of all


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Named algorithms", set(BUNDLES)),
        ("Advantages", set(get_args(AdvantageName))),
        ("Policy losses", set(get_args(LossName))),
        ("Aggregation", set(get_args(Aggregation))),
        ("KL to the reference", {*get_args(KlEstimator), "algorithm.kl_target"}),
    ],
)
def test_the_index_names_all_that_there_is_and_no_more(heading: str, names: set[str]) -> None:
    assert set(rows_of(heading)) == names


def test_the_index_names_every_correction() -> None:
    keys = {name.split(" ")[0] for name in rows_of("Sampler and trainer apart")}
    assert keys == set(CorrectionConfig.model_fields) - {"weight_cap"}


@every_bundle
def test_a_named_algorithm_has_its_file_its_page_and_its_source_in_the_index(name: str) -> None:
    row = rows_of("Named algorithms")[name]
    assert f"(algorithms/{name}.md)" in row
    assert linked(row, "src") == [ROOT / f"src/strop/config/bundles/{name}.py"]
    (paper,) = re.findall(r"\d{4}\.\d{5}", row)
    assert f"arXiv:{paper}" in docstring(f"config/bundles/{name}.py")


@pytest.mark.parametrize(
    ("heading", "folder", "functions"),
    [("Advantages", "advantages", ESTIMATORS), ("Policy losses", "losses", LOSSES)],
)
def test_a_part_has_its_file_its_sources_and_a_test_that_calls_it(
    heading: str, folder: str, functions: Mapping[str, str]
) -> None:
    for name, row in rows_of(heading).items():
        module, _, function = functions[name].partition(".")
        assert linked(row, "src") == [ROOT / f"src/strop/algorithms/{folder}/{module}.py"], name
        papers = re.findall(r"\d{4}\.\d{5}", row)
        assert [p for p in papers if p not in docstring(f"algorithms/{folder}/{module}.py")] == [], name
        (test,) = linked(row, "tests")
        text = test.read_text(encoding="utf-8")
        assert re.search(rf'\b{function}\b|"{name}"|\b{module}\b', text), f"{test.name} must try {name}"


def test_every_row_says_what_strop_trl_and_verl_have() -> None:
    rows = re.findall(r"^\| (.*) \|$", INDEX.partition("## What holds for all")[0], flags=re.MULTILINE)
    support = [row.split(" | ")[-3:] for row in rows if not row.startswith(("name", "key", "divergence", "--"))]
    assert len(support) > 80
    wrong = [cells for cells in support for cell in cells if not re.match(r"(yes|no|part: .+)(,|$|\b)", cell)]
    assert wrong == []
