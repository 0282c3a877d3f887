"""`strop config` prints every key, a section, or one key."""

import json
import tomllib

from strop.config.describe import as_markdown, describe
from support.command import run_strop


def test_the_json_listing_holds_every_key() -> None:
    listed = json.loads(run_strop("config", "--json").stdout)
    assert [item["key"] for item in listed] == [description.key for description in describe()]


def test_the_listing_of_a_section_is_toml_with_its_defaults() -> None:
    listing = run_strop("config", "training").stdout
    table = tomllib.loads(listing)["training"]
    assert table["learning_rate"] == 1e-6
    assert "# Peak learning rate of AdamW." in listing
    assert "learning_rate = 1e-06  # a number, above 0" in listing


def test_the_whole_listing_names_every_key_and_its_documentation() -> None:
    listing = run_strop("config").stdout
    for description in describe():
        assert description.documentation in listing
        assert f"{description.key.rsplit('.', 1)[1]} = " in listing


def test_one_key_is_printed_alone() -> None:
    lines = run_strop("config", "model.path").stdout.splitlines()
    assert len(lines) == 3
    assert lines[2] == "# path =  # required: text"


def test_an_unknown_section_is_refused_with_the_nearest_name() -> None:
    result = run_strop("config", "trainng")
    assert result.returncode == 2
    assert "Did you mean training?" in result.stderr


def test_the_markdown_listing_is_the_page_of_the_documentation() -> None:
    assert run_strop("config", "--markdown").stdout == as_markdown(describe()) + "\n"


def test_two_forms_at_once_are_refused() -> None:
    result = run_strop("config", "--json", "--markdown")
    assert result.returncode == 2
    assert "--json and --markdown" in result.stderr
