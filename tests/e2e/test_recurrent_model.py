"""Whole runs of models with recurrent layers: sampled, trained, proven, saved, resumed, exported."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from strop.api import export, generate, train
from strop.config.model import ModelConfig
from strop.config.root import Config
from strop.metrics.sinks.jsonl import read_metrics
from strop.records import SamplingParams
from support.runs import assert_same_run, held_out, tiny_run, weights
from support.tiny import tiny_folder


def run_of(folder: Path, family: str, steps: int = 2, **sections: dict[str, Any]) -> Config:
    folder.mkdir(parents=True)
    model = {"path": str(tiny_folder(folder, family)), **sections.pop("model", {})}
    return tiny_run(folder, run={"steps": steps}, model=model, training={"learning_rate": 1e-2}, **sections)


def step_lines(folder: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(folder / "metrics.jsonl") if "update/gradient_norm" in line]


@pytest.mark.parametrize("family", ["qwen3_next", "mamba", "falcon_h1"])
def test_every_step_teaches_the_policy_and_is_proven_by_the_sampler(family: str, tmp_path: Path) -> None:
    config = run_of(tmp_path / "run", family, evaluation=held_out(tmp_path, every=2, samples=2))
    folder = train(config).folder
    lines = step_lines(folder)
    assert len(lines) == 2
    for line in lines:
        assert line["update/gradient_norm"] > 0
        assert line["sync/state"] == 1
        assert line["sync/logprob_difference"] < 1e-4
        assert line["sync/cache_logprob_difference"] < 1e-4
    untrained = dict(AutoModelForCausalLM.from_pretrained(config.model.path).named_parameters())
    exported = dict(
        AutoModelForCausalLM.from_pretrained(export(folder, None, tmp_path / "exported")).named_parameters()
    )
    trained = weights(folder)
    assert exported.keys() == untrained.keys() == trained.keys()
    assert all(torch.equal(weight, trained[name]) for name, weight in exported.items())
    assert not any(torch.equal(weight, trained[name]) for name, weight in untrained.items())


def test_stopping_and_resuming_equals_never_stopping(tmp_path: Path) -> None:
    straight = train(run_of(tmp_path / "straight", "qwen3_next", steps=3)).folder
    short = run_of(tmp_path / "parts", "qwen3_next", steps=1)
    train(short)
    longer = short.model_copy(update={"run": short.run.model_copy(update={"steps": 3})})
    assert_same_run(train(longer, resume=True).folder, straight)


def test_bfloat16_runs_are_proven_too(tmp_path: Path) -> None:
    folder = train(run_of(tmp_path / "run", "mamba", steps=1, model={"dtype": "bfloat16"})).folder
    (line,) = step_lines(folder)
    assert line["sync/state"] >= 0
    assert line["sync/logprob_difference"] < 0.05


def test_generate_answers_with_a_recurrent_model(tmp_path: Path) -> None:
    section = ModelConfig(path=str(tiny_folder(tmp_path, "mamba")))
    answers = generate(section, ["one", "two"], sampling=SamplingParams(max_new_tokens=5), samples=2)
    assert [len(group) for group in answers] == [2, 2]
