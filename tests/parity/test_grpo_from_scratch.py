"""The GRPO that is written out in one file trains the same weights as `strop train`."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from strop.api import open_session, train
from strop.config.root import Config
from support.runs import tiny_run, weights
from support.training import relative_error

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_from_scratch.py"
TOLERANCE = 1e-6


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grpo_from_scratch", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights_of_the_example(config: Config) -> dict[str, torch.Tensor]:
    with open_session(config) as session:
        load_example().train(session, config.run.steps)
        return {chunk.name: chunk.tensor.clone() for chunk in session.run.policy.export_weights()}


@pytest.mark.parametrize(
    "settings",
    [{}, {"rows": 5, "training": {"learning_rate": 1e-3, "micro_batch_tokens": 40}}, {"rollout": {"temperature": 0.7}}],
    ids=["plain", "small_micro_batches_across_an_epoch_end", "at_another_temperature"],
)
def test_three_steps_of_the_example_give_the_weights_of_a_run(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = tiny_run(tmp_path, run={"steps": 3}, **settings)
    trained = weights(train(config).folder)
    example = weights_of_the_example(config)
    assert example.keys() == trained.keys()
    errors = {name: relative_error(example[name], tensor) for name, tensor in trained.items()}
    assert max(errors.values()) <= TOLERANCE, errors


def test_the_example_has_advantages_of_its_own_and_the_comparison_sees_others(tmp_path: Path) -> None:
    without_std = tiny_run(tmp_path, run={"steps": 2}, algorithm={"advantage_std": "none"})
    trained = weights(train(without_std).folder)
    example = weights_of_the_example(without_std)
    assert max(relative_error(example[name], tensor) for name, tensor in trained.items()) > 100 * TOLERANCE
