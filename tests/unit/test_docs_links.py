"""The documents agree with the repository: links, paths, commands, keys and generated tables."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from strop.cli.main import app
from strop.config.checks import refusals
from strop.config.describe import as_markdown, describe
from strop.config.load import load_config

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
WRITTEN_BY_A_PERSON_OR_A_RUN = {"my_file.py", "run.toml", "metrics.jsonl"}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def fenced_blocks(text: str, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def broken_links(page: Path, text: str) -> list[str]:
    """The relative links of a page, whose target is not there."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [
        target
        for target in targets
        if "://" not in target and not (page.parent / target.partition("#")[0]).resolve().exists()
    ]


def missing_paths(text: str) -> list[str]:
    """Files and folders named in code spans, from the root or from the package, that are not there."""
    spans = [span for span in code_spans(text) if re.fullmatch(r"[\w./-]+(\.(py|md|toml|txt|jsonl)|/)", span)]
    bases = (ROOT, ROOT / "src" / "strop", ROOT / "src" / "strop" / "algorithms", ROOT / "docs")
    named = set(spans) - WRITTEN_BY_A_PERSON_OR_A_RUN
    package = list((ROOT / "src" / "strop").rglob("*"))
    inside = {f"{path.name}/" if path.is_dir() else path.name for path in package}
    return sorted(span for span in named if not any((base / span).exists() for base in bases) and span not in inside)


def unknown_keys(text: str) -> list[str]:
    """Dotted config keys in code spans that no run file may hold."""
    known = {description.key.replace("[]", "") for description in [*describe(), *describe(offline=True)]}
    tables = {key.rpartition(".")[0] for key in known}
    sections = {key.split(".")[0] for key in known}
    spans = [span.split("=")[0].replace("[]", "") for span in code_spans(text)]
    dotted = {
        span for span in spans if re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", span) and span.split(".")[0] in sections
    }
    return sorted(
        span for span in dotted if span not in known | tables and not span.endswith((".py", ".toml", ".json", ".jsonl"))
    )


def unknown_commands(text: str) -> list[str]:
    """Sub-commands of strop that a page names and that do not exist."""
    named = re.findall(r"(?:`|bin/)strop ([a-z]+)", text)
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    return sorted(set(named) - commands - {group.name for group in app.registered_groups})


@every_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found() -> None:
    text = "[here](README.md) [gone](docs/gone.md) [out](https://example.org/gone) [part](LICENSE#end)"
    assert broken_links(ROOT / "README.md", text) == ["docs/gone.md"]


@every_page
def test_every_path_that_is_named_exists(page: Path) -> None:
    assert missing_paths(page.read_text(encoding="utf-8")) == []


@every_page
def test_every_config_key_that_is_named_exists(page: Path) -> None:
    assert unknown_keys(page.read_text(encoding="utf-8")) == []


@every_page
def test_every_command_that_is_named_exists(page: Path) -> None:
    assert unknown_commands(page.read_text(encoding="utf-8")) == []


def test_a_path_a_key_and_a_command_that_are_not_there_are_found() -> None:
    text = "`trainers/step.py` `trainers/gone.py` `run.steps` `run.stepps` `rollout.group_size=4` `model.lora`"
    assert missing_paths(text) == ["trainers/gone.py"]
    assert unknown_keys(text) == ["run.stepps"]
    assert unknown_commands("`strop train RUN.toml`, `strop trian`, `strop bench step`") == ["trian"]


def test_the_readme_has_at_most_150_lines_and_begins_with_demo_and_test() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert [block.strip() for block in fenced_blocks(text, r"\w*")[:2]] == ["make demo", "make test"]


def test_the_run_file_of_the_readme_has_20_lines_and_is_accepted(tmp_path: Path) -> None:
    (run_file,) = fenced_blocks((ROOT / "README.md").read_text(encoding="utf-8"), "toml")
    assert len(run_file.splitlines()) == 20
    (tmp_path / "run.toml").write_text(run_file, encoding="utf-8")
    config = load_config(tmp_path / "run.toml")
    assert refusals(config) == []
    table = tomllib.loads(run_file)
    reward_file, function = table["rewards"][0]["function"].split(":")
    assert (ROOT / table["data"]["source"]["path"]).is_file()
    assert f"def {function}(" in (ROOT / reward_file).read_text(encoding="utf-8")


def test_the_loop_of_the_readme_uses_verbs_that_a_session_has() -> None:
    blocks = fenced_blocks((ROOT / "README.md").read_text(encoding="utf-8"), "python")
    (loop,) = [ast.parse(block) for block in blocks if "open_session" in block]
    tree = ast.parse((ROOT / "src" / "strop" / "trainers" / "session.py").read_text(encoding="utf-8"))
    (session,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Session"]
    verbs = {node.name for node in session.body if isinstance(node, ast.FunctionDef)}
    used = {
        node.attr
        for node in ast.walk(loop)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "session"
    }
    assert {"sample", "reward", "forward_backward"} < used <= verbs


def test_the_config_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert page == as_markdown(describe()) + "\n", "run `make docs`"


def test_every_dependency_has_a_row_and_no_row_is_left_over() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {re.split(r"[^\w-]", requirement)[0] for items in lists for requirement in items} - {"strop"}
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, flags=re.MULTILINE)) == declared
