"""Every key is described from the models themselves."""

import json

import pytest

from strop.config.describe import KeyDescription, as_json, as_markdown, describe, describe_only
from strop.config.load import load_config
from strop.errors import ConfigError


def by_key(key: str) -> KeyDescription:
    (found,) = [description for description in describe() if description.key == key]
    return found


def test_the_number_of_keys_stays_in_bounds() -> None:
    assert 200 < len(describe()) < 300


def test_every_key_is_documented_in_a_sentence() -> None:
    for description in describe():
        assert description.documentation.endswith("."), description.key
        assert description.kind, description.key


def test_a_description_gives_kind_default_bounds_and_documentation() -> None:
    description = by_key("training.learning_rate")
    assert (description.kind, description.default, description.constraints) == ("a number", "1e-06", "above 0")
    assert description.documentation == "Peak learning rate of AdamW."


def test_keys_of_alternatives_say_when_they_exist() -> None:
    assert by_key("data.source.split").when == "type = hub"
    assert by_key("data.source.type").required
    assert by_key("data.source.parts[].weight").when == "type = mixture"
    assert by_key("data.source.type").kind == "one of jsonl, parquet, hub, reasoning_gym, mixture"


def test_a_table_inside_its_own_alternatives_is_described_once() -> None:
    inner = by_key("data.source.parts[].source")
    assert inner.kind == "a table"
    assert inner.documentation.endswith("Its keys are those of `data.source`.")
    assert not [d for d in describe() if d.key.startswith("data.source.parts[].source.")]


def test_a_section_a_list_and_a_key_can_be_selected() -> None:
    assert {d.key.split(".")[0] for d in describe_only("training")} == {"training"}
    assert [d.key for d in describe_only("rewards")][:2] == ["rewards[].function", "rewards[].weight"]
    assert [d.key for d in describe_only("run.steps")] == ["run.steps"]
    with pytest.raises(ConfigError, match="train must be a section or a key"):
        describe_only("train")


def test_the_json_listing_holds_every_key() -> None:
    listed = json.loads(as_json(describe()))
    assert len(listed) == len(describe())
    assert {"key", "kind", "default", "constraints", "documentation", "when", "required"} == set(listed[0])


def test_the_markdown_page_has_one_row_a_key_under_its_section() -> None:
    sections = as_markdown(describe()).split("\n## ")[1:]
    rows = [(section.split("\n")[0], line) for section in sections for line in section.splitlines() if "| `" in line]
    assert len(rows) == len(describe())
    for (section, row), description in zip(rows, describe(), strict=True):
        assert description.key.split(".")[0].removesuffix("[]") == section
        assert row.startswith(f"| `{description.key}` | {description.kind}")
        assert row.count(" | ") == 3, row


def test_the_markdown_page_tells_required_keys_from_those_left_out() -> None:
    page = as_markdown(describe())
    assert "| `model.path` | text | required |" in page
    assert "| `model.revision` | text | left out |" in page
    assert "| `run.steps` | a whole number, at least 0 | `100` |" in page
    assert "| left out | With `type = hub`: Configuration name of the data set. |" in page


JSONL = "{type='jsonl', path='x'}"
NUMBER = "{type='number', pattern='(.)', lowest=0, highest=1}"
SERVER = "{type='server', url='http://x', model='m'}"
WHOLE = {
    "evaluation.": f"evaluation.source={JSONL}",
    "distillation.": "distillation={teachers=[{path='x'}]}",
    "rewards[].model.": "rewards.0={model={path='x'}}",
    "rewards[].judge.": f"rewards.0={{judge={{engine={SERVER}, rubric='{{completion}}', verdict={NUMBER}}}}}",
}
"""A table that is whole, where the keys inside it can only stand beside others."""
KINDS = {
    "jsonl": JSONL,
    "parquet": "{type='parquet', path='x'}",
    "hub": "{type='hub', path='x'}",
    "reasoning_gym": "{type='reasoning_gym', name='x'}",
    "mixture": f"{{type='mixture', parts=[{{source={JSONL}}}]}}",
    "server": SERVER,
    "native": "{type='native', path='x'}",
    "number": NUMBER,
    "label": "{type='label', labels={yes=1.0, no=0.0}}",
    "json": "{type='json', field='x', lowest=0, highest=1}",
}


@pytest.mark.parametrize("description", describe(), ids=lambda d: f"{d.key} {d.when}")
def test_the_described_default_is_accepted_by_the_loader(description: KeyDescription) -> None:
    if description.default is None:
        return
    key = description.key
    overrides = ["model.path=m", "data.task=math", f"data.source={JSONL}"]
    overrides += [whole for prefix, whole in WHOLE.items() if key.startswith(prefix)]
    if description.when:
        kind = description.when.removeprefix("type = ")
        table = key.partition(".parts[]")[0] if ".parts[]" in key else key.rpartition(".")[0]
        overrides.append(f"{table.replace('[]', '.0')}={KINDS[kind]}")
    load_config(None, [*overrides, f"{key.replace('[]', '.0')}={description.default}"])


def test_the_described_bounds_hold() -> None:
    for override in ("run.steps=-1", "training.beta1=1", "rollout.top_p=0", "rollout.group_size=0"):
        with pytest.raises(ConfigError):
            load_config(None, ["model.path=m", "data.task=math", "data.source={type='jsonl', path='x'}", override])
