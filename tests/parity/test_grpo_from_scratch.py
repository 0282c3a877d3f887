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
SCALE_MATTERS = {"learning_rate": 1e-2, "epsilon": 1e-2, "max_gradient_norm": 100.0}
"""AdamW divides the scale of a gradient away, and so does clipping: these settings leave it in."""


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
    [
        {},
        {"rows": 5, "training": {**SCALE_MATTERS, "micro_batch_tokens": 40}},
        {"rollout": {"temperature": 0.7}},
        {"reward": "half_constant", "rollout": {"prompts_per_step": 1}, "data": {"shuffle": False}},
    ],
    ids=["plain", "small_micro_batches_across_an_epoch_end", "at_another_temperature", "a_step_without_signal"],
)
def test_three_steps_of_the_example_give_the_weights_of_a_run(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = tiny_run(tmp_path, run={"steps": 3}, **{"training": SCALE_MATTERS, **settings})
    trained = weights(train(config).folder)
    example = weights_of_the_example(config)
    assert example.keys() == trained.keys()
    errors = {name: relative_error(example[name], tensor) for name, tensor in trained.items()}
    assert max(errors.values()) <= TOLERANCE, errors


def test_the_example_has_advantages_of_its_own_and_the_comparison_sees_others(tmp_path: Path) -> None:
    other = tiny_run(tmp_path, run={"steps": 2}, training=SCALE_MATTERS, algorithm={"advantage_std": "population"})
    trained = weights(train(other).folder)
    example = weights_of_the_example(other)
    assert max(relative_error(example[name], tensor) for name, tensor in trained.items()) > 100 * TOLERANCE


def test_two_updates_and_two_epochs_a_batch_are_the_same_loop_over_halves(tmp_path: Path) -> None:
    """After an update a session takes the sampler's log-probs as old ones, a run its own: they differ by rounding."""
    training = {**SCALE_MATTERS, "updates_per_batch": 2, "epochs_per_batch": 2}
    config = tiny_run(tmp_path, run={"steps": 1}, training=training, algorithm={"clip_low": 0.1, "clip_high": 0.1})
    trained = weights(train(config).folder)
    example = load_example()
    example.CLIP = 0.1
    with open_session(config) as session:
        groups = [example.with_advantages(group) for group in session.reward(session.sample(session.prompts(2)))]
        for part in [groups[:1], groups[1:]] * 2:
            session.forward_backward(
                part, loss=example.clipped_loss, weights=example.teaching(part, example.token_weights(part))
            )
            session.optimizer_step()
        looped = {chunk.name: chunk.tensor.clone() for chunk in session.run.policy.export_weights()}
    assert max(relative_error(looped[name], tensor) for name, tensor in trained.items()) <= 1e-5
