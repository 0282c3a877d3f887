"""Whole runs that learn from teachers: the divergence falls, alone and beside rewards, and rows find their teacher."""

import json
from pathlib import Path
from typing import Any

import pytest

from strop.api import train
from strop.config.root import Config
from strop.errors import ConfigError
from support.runs import assert_same_run, stored_metrics, tiny_run
from support.tiny import tiny_model
from support.tokenizer import tiny_tokenizer


def teacher(folder: Path, seed: int) -> str:
    """A tiny model with opinions: its head is three times as large."""
    path = folder / f"teacher-{seed}"
    model = tiny_model("llama", seed=seed)
    model.get_output_embeddings().weight.data.mul_(3)
    model.save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return str(path)


def distilled(folder: Path, *, rewards: bool = False, rows: Path | None = None, **distillation: Any) -> Config:
    config = tiny_run(
        folder,
        run={"steps": 12},
        training={"learning_rate": 2e-2},
        rollout={"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 8},
        checkpoint={"every": 0},
    )
    tree = config.model_dump(exclude_unset=True)
    tree["distillation"] = {"teachers": [{"path": teacher(folder, 5)}], "with_rewards": rewards, **distillation}
    if not rewards:
        tree["rewards"] = []
    if rows is not None:
        tree["data"]["source"] = {"type": "jsonl", "path": rows}
    return Config(**tree)


def divergences(folder: Path) -> list[float]:
    return [line["distillation/divergence"] for line in stored_metrics(folder)[1:]]


def falls_by(found: list[float]) -> float:
    """How many times larger the mean of the first quarter is than that of the last."""
    quarter = len(found) // 4
    return sum(found[:quarter]) / sum(found[-quarter:])


@pytest.mark.parametrize(
    "distillation",
    [
        pytest.param({}, id="forward_kl"),
        pytest.param({"tail": False, "top_k": 8}, id="without_tail", marks=pytest.mark.slow),
        pytest.param({"rewards": True}, id="with_rewards", marks=pytest.mark.slow),
    ],
)
def test_the_divergence_from_the_teacher_falls(tmp_path: Path, distillation: dict[str, Any]) -> None:
    found = divergences(train(distilled(tmp_path, **distillation)).folder)
    assert falls_by(found) > 1.4, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "distillation",
    [{"divergence": "k3"}, {"divergence": "k2"}, {"divergence": "k1", "placement": "reward"}],
    ids=["k3", "k2", "k1_as_reward"],
)
def test_estimators_of_sampled_tokens_need_more_samples_and_do_it_too(
    tmp_path: Path, distillation: dict[str, Any]
) -> None:
    config = distilled(tmp_path, **distillation)
    longer = {
        "run": config.run.model_copy(update={"steps": 40}),
        "rollout": config.rollout.model_copy(update={"group_size": 16}),
        "training": config.training.model_copy(update={"learning_rate": 1e-2}),
    }
    found = divergences(train(config.model_copy(update=longer)).folder)
    assert falls_by(found) > 1.25, found


def test_without_rewards_nothing_is_said_of_them(tmp_path: Path) -> None:
    folder = train(distilled(tmp_path)).folder
    line = stored_metrics(folder)[-1]
    assert not [name for name in line if name.startswith("reward")]
    assert line["samples/error_share"] == 0
    assert line["update/applied"] == 1


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    config = distilled(tmp_path)
    whole = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"every": 2})})
    short = whole.model_copy(update={"run": config.run.model_copy(update={"steps": 4})})
    finished = train(whole).folder
    kept = finished.rename(tmp_path / "whole")
    train(short)
    resumed = train(whole, resume=True).folder
    assert_same_run(resumed, kept)


def write_routed(path: Path, names: list[str]) -> Path:
    rows = [{"question": f"What is {i}", "answer": str(i), "teacher": name} for i, name in enumerate(names)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_are_scored_by_the_teacher_that_they_name(tmp_path: Path) -> None:
    """With one teacher equal to the policy, only the rows of the other have a divergence."""
    folder = tmp_path / "made"
    config = distilled(folder)
    own = {"path": config.model.path, "name": "own"}
    other = {"path": teacher(folder, 5), "name": "other"}
    found = {}
    for names in ("own", "other", "both"):
        routed = ["own", "other"] * 4 if names == "both" else [names] * 8
        rows = write_routed(folder / f"{names}.jsonl", routed)
        run = distilled(folder, rows=rows, teachers=[own, other], route_column="teacher")
        run = run.model_copy(
            update={"run": run.run.model_copy(update={"steps": 1, "name": names, "output_dir": folder / "routed"})}
        )
        (found[names],) = divergences(train(run).folder)
    assert found["own"] < 1e-5
    assert found["other"] > 0.1
    assert found["own"] < found["both"] < 1.2 * found["other"]


def test_a_row_that_names_no_teacher_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    config = distilled(tmp_path)
    rows = write_routed(tmp_path / "rows.jsonl", ["one", "three"])
    teachers = [{"path": config.model.path, "name": "one"}, {"path": teacher(tmp_path, 5), "name": "two"}]
    run = distilled(tmp_path, rows=rows, teachers=teachers, route_column="teacher")
    with pytest.raises(ConfigError, match=r"rows.jsonl:1 must name a teacher, one of one, two, got 'three'"):
        train(run)


def test_a_teacher_of_another_vocabulary_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    config = distilled(tmp_path)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(config.distillation.teachers[0].path)
    with pytest.raises(ConfigError, match=r"must have the policy's vocabulary, got \d+ tokens.*'<new>'"):
        train(config)
