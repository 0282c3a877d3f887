"""The config names the tasks that exist, without importing them."""

import pytest

from strop.config.checks import refusals
from strop.config.load import load_config
from strop.tasks.build import NAMES


@pytest.mark.parametrize("name", [name for name in NAMES if "<" not in name])
def test_the_config_takes_every_task(name: str) -> None:
    settings = ["model.path=m", f"data.task={name}", "data.source={type='jsonl', path='x'}"]
    assert [refusal for refusal in refusals(load_config(None, settings)) if "task" in refusal.key] == []


def test_the_config_knows_no_other_tasks() -> None:
    settings = ["model.path=m", "data.task=guess", "data.source={type='jsonl', path='x'}"]
    [refusal] = [one for one in refusals(load_config(None, settings)) if "task" in one.key]
    assert all(name in str(refusal) for name in NAMES)
