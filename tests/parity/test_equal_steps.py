"""What may change memory and speed changes no number: cuts of the batch, chunks, checkpointing, slots, evaluation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strop.api import open_session, train
from strop.config.evaluation import EvaluationConfig
from strop.config.root import Config
from strop.metrics import values
from strop.records import Group
from support.runs import assert_same_tensors, checkpoint_tensors, held_out, stored_samples, tiny_run
from support.training import assert_gradients_close, gradients

TOLERANCE = 1e-5
LOGPROB_TOLERANCE = 1e-4


def first_step(config: Config, groups: list[Group] | None = None) -> tuple[list[Group], float, dict[str, torch.Tensor]]:
    """Returns the first step's groups (sampled where none are given), its loss and its gradients."""
    with open_session(config) as session:
        if groups is None:
            prompts = session.prompts(config.rollout.prompts_per_step)
            groups = session.advantages(session.reward(session.sample(prompts)))
        loss = values(session.forward_backward(groups))["update/loss"]
        assert loss is not None
        return groups, loss, gradients(session.run.policy)


REFERENCE: dict[str, Any] = {"learning_rate": 1e-3, "micro_batch_tokens": 4096, "logprob_chunk_tokens": 512}


@pytest.mark.parametrize("algorithm", [{}, {"kl_coefficient": 0.2, "entropy_coefficient": 0.1}], ids=["plain", "kl"])
@pytest.mark.parametrize(
    "training",
    [
        {"micro_batch_tokens": 30},
        {"micro_batch_tokens": 1},
        {"logprob_chunk_tokens": 3},
        {"gradient_checkpointing": True},
        {"micro_batch_tokens": 60, "logprob_chunk_tokens": 5, "gradient_checkpointing": True},
    ],
    ids=["small_micro_batches", "one_sample_a_micro_batch", "small_chunks", "gradient_checkpointing", "all_of_it"],
)
def test_loss_and_gradients_do_not_depend_on_how_they_are_computed(
    tmp_path: Path, training: dict[str, Any], algorithm: dict[str, Any]
) -> None:
    config = tiny_run(tmp_path, training=REFERENCE, algorithm=algorithm)
    groups, loss, expected = first_step(config)
    other = tiny_run(tmp_path, training={**REFERENCE, **training}, algorithm=algorithm)
    _, other_loss, actual = first_step(other, groups)
    assert other_loss == pytest.approx(loss, rel=TOLERANCE, abs=1e-7)
    assert_gradients_close(actual, expected, TOLERANCE)


@pytest.mark.parametrize("rollout", [{"max_running": 1}, {"max_running": 4}, {"packed_linears": False}], ids=str)
def test_samples_do_not_depend_on_how_many_run_together(tmp_path: Path, rollout: dict[str, Any]) -> None:
    """Rounding may move a draw over the boundary of a token; no draw of this seed lies that near to one."""
    groups, _, _ = first_step(tiny_run(tmp_path))
    others, _, _ = first_step(tiny_run(tmp_path, rollout=rollout))
    for group, other in zip(groups, others, strict=True):
        for one, two in zip(group.samples, other.samples, strict=True):
            np.testing.assert_array_equal(one.rows[0].token_ids, two.rows[0].token_ids)
            np.testing.assert_allclose(
                one.rows[0].rollout_logprobs, two.rows[0].rollout_logprobs, atol=LOGPROB_TOLERANCE
            )


def test_evaluation_changes_nothing_of_the_training(tmp_path: Path) -> None:
    silent = tiny_run(tmp_path, run={"name": "silent"})
    watched = tiny_run(
        tmp_path, run={"name": "watched"}, evaluation=held_out(tmp_path, every=1, samples=2, greedy=True)
    )
    folders = [train(config).folder for config in (silent, watched)]
    assert_same_tensors(*(engine_tensors(folder) for folder in folders))
    assert stored_samples(folders[0]) == stored_samples(folders[1])


def test_evaluation_draws_from_streams_of_its_own(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, run={"seed": 3})
    same_rows = config.model_copy(
        update={"evaluation": EvaluationConfig(source=config.data.source, samples=config.rollout.group_size)}
    )
    with open_session(same_rows) as session:
        (evaluation,) = session.evaluate()
        trained = {group.prompt.prompt_id: group for group in session.sample(session.prompts(8))}
        pairs = [(group, trained[group.prompt.prompt_id]) for group in evaluation.groups]
        texts = [[session.text(sample) for sample in group.samples] for pair in pairs for group in pair]
    assert len(pairs) == 8
    assert all(one != two for one, two in zip(texts[::2], texts[1::2], strict=True))


def test_checkpoints_and_stored_samples_change_nothing_of_the_training(tmp_path: Path) -> None:
    often = train(tiny_run(tmp_path, run={"name": "often"})).folder
    once = train(
        tiny_run(tmp_path, run={"name": "once"}, checkpoint={"every": 4}, metrics={"save_samples": False})
    ).folder
    assert_same_tensors(engine_tensors(often), engine_tensors(once))


def engine_tensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors = checkpoint_tensors(folder)
    assert any(name.startswith("parameters/") for name in tensors)
    return tensors
