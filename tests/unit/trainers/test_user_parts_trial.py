"""A loss or an estimator of the user's that cannot work is told in a dry run, before any weight is read."""

from pathlib import Path

import pytest

from strop.api import dry_run
from strop.errors import ConfigError
from support.runs import tiny_run

GOOD = """
import numpy as np
from strop.algorithms.advantages.samples import with_sample_advantages


def loss(terms, settings):
    return -terms.ratio_N * terms.advantages_N


def advantage(groups, settings):
    return [with_sample_advantages(group, [sample.reward or 0 for sample in group.samples]) for group in groups]


def by_column(groups, settings):
    scale = {group.prompt.columns["answer"]: len(group.samples) for group in groups}
    assert set(scale.values()) == {3}
    return advantage(groups, settings)


def by_part(groups, settings):
    return [with_sample_advantages(g, [s.reward_parts["spread"].value if s.reward_parts else 0 for s in g.samples])
            for g in groups]
"""


def tried(folder: Path, text: str = GOOD, **algorithm: str) -> None:
    """A dry run, in a folder with this file, whose model has no weights."""
    (folder / "mine.py").write_text(text, encoding="utf-8")
    named = {key: f"{folder}/{value}" for key, value in algorithm.items()}
    config = tiny_run(folder, algorithm=named)
    (folder / "llama-0" / "model.safetensors").unlink(missing_ok=True)
    dry_run(config)


@pytest.mark.parametrize(
    ("key", "name"),
    [("loss", "loss"), ("advantage", "advantage"), ("advantage", "by_column"), ("advantage", "by_part")],
)
def test_a_function_that_works_is_taken(key: str, name: str, tmp_path: Path) -> None:
    tried(tmp_path, **{key: f"mine.py:{name}"})


@pytest.mark.parametrize("key", ["loss", "advantage"])
def test_a_wrong_name_is_told_with_the_key_of_the_run_file(key: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=rf"^algorithm\.{key}: .*/absent\.py must be a readable Python file, got no such"
    ):
        tried(tmp_path, **{key: "absent.py:loss"})
    with pytest.raises(
        ConfigError, match=rf"^algorithm\.{key}: .*mine\.py must have the function 'los' \(did you mean 'loss'"
    ):
        tried(tmp_path, **{key: "mine.py:los"})
    with pytest.raises(ConfigError, match=rf"^algorithm\.{key} must be `my_file\.py:name` or .*, got '.*mine\.py:'"):
        tried(tmp_path, **{key: "mine.py:"})


def test_a_fault_of_the_file_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^algorithm\.loss: .* cannot be loaded: line 2: SyntaxError"):
        tried(tmp_path, "\ndef loss(terms settings): pass\n", loss="mine.py:loss")


@pytest.mark.parametrize(
    ("key", "body", "message"),
    [
        ("loss", "return terms.advantage * terms.ratio_N", r"fails in a trial: line 2: AttributeError: .* 'advantage'"),
        ("loss", "return terms.ratio_N.mean()", r"must return one loss a token, of shape \[5\], got \[\]"),
        ("loss", "return terms.ratio_N / terms.advantages_N", r"must return finite losses, got inf for a token of adv"),
        ("loss", "return terms.ratio_N.detach()", r"must return losses with a gradient"),
        (
            "advantage",
            "return [sum(s.reward for s in g.samples) for g in terms]",
            r"fails in a trial: line 2: TypeError",
        ),
        ("advantage", "return terms", r"must put advantages on every row, got none on sample 0"),
    ],
)
def test_a_function_that_does_not_work_is_told_before_weights_are_read(
    key: str, body: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"^algorithm\.{key} \(.*mine\.py:f\) ") as caught:
        tried(tmp_path, f"def f(terms, settings):\n    {body}\n", **{key: "mine.py:f"})
    caught.match(message)
