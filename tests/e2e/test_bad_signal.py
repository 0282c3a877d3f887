"""Rewards without signal and updates that are not finite: a run says so, and stops within a bound."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from strop.api import train
from strop.errors import ModelError
from strop.metrics.samples import SampleStore
from strop.trainers.errors import NoSignalError
from strop.training.errors import TooManySkippedUpdates
from support.runs import newest_checkpoint, stored_metrics, tiny_run, weights

KEEP_TRUNCATED = {"name": "dapo", "truncated": "keep"}


def test_dynamic_sampling_stops_within_its_bound_where_no_group_has_signal(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, reward="constant", algorithm={**KEEP_TRUNCATED, "max_sampling_rounds": 3})
    with pytest.raises(NoSignalError, match="3 rounds") as caught:
        train(config)
    assert caught.value.exit_code == 2
    assert "algorithm.drop_zero_signal" in str(caught.value)
    assert newest_checkpoint(config.run.output_dir / "run").name == "step-00000000"


def test_dynamic_sampling_refills_a_batch_whose_groups_lack_signal(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, reward="half_constant", algorithm=KEEP_TRUNCATED, run={"steps": 3})
    folder = train(config).folder
    lines = stored_metrics(folder)[1:]
    assert all(line["groups/kept"] == 2 for line in lines)
    assert any(line["groups/generated"] > 2 for line in lines)
    store = SampleStore(folder / "samples")
    groups = [group for step in store.steps() for group in store.read(step)]
    assert all(group.trained == (not is_odd(group.prompt_text)) for group in groups)
    assert len(groups) == sum(line["groups/generated"] for line in lines)


def is_odd(question: str) -> bool:
    return int(question.split()[-1]) % 2 == 1


def test_data_that_end_with_a_group_without_signal_end_the_run_and_are_no_error(tmp_path: Path) -> None:
    config = tiny_run(
        tmp_path,
        reward="half_constant",
        rows=2,
        data={"epochs": 1, "shuffle": False},
        rollout={"prompts_per_step": 1},
        algorithm=KEEP_TRUNCATED,
    )
    assert train(config).steps == 1


def test_data_without_any_signal_are_an_error_and_their_samples_are_kept(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, reward="constant", rows=3, data={"epochs": 1}, algorithm=KEEP_TRUNCATED)
    with pytest.raises(NoSignalError, match="3 groups"):
        train(config)
    groups = list(SampleStore(config.run.output_dir / "run" / "samples").read(1))
    assert [group.trained for group in groups] == [False] * 3


def test_updates_that_are_not_finite_are_skipped_and_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_run(
        tmp_path,
        reward="huge",
        algorithm={"name": "dr_grpo"},
        training={"learning_rate": 1e-3, "max_skipped_updates": 3},
        run={"steps": 9},
    )
    with pytest.raises(TooManySkippedUpdates) as caught:
        train(config)
    assert caught.value.exit_code == 2
    assert caught.value.num_skipped == 3
    folder = config.run.output_dir / "run"
    assert_weights_are_those_of_the_model(folder, Path(config.model.path))
    lines = stored_metrics(folder)[1:]
    assert [line["update/skipped"] for line in lines] == [1, 1]
    assert [line["update/applied"] for line in lines] == [0, 0]
    groups = [group for step in (1, 2) for group in SampleStore(folder / "samples").read(step)]
    assert {int(row.versions.max()) for group in groups for sample in group.samples for row in sample.rows} == {0}
    warning = capsys.readouterr().out
    assert "the weights are unchanged" in warning
    for text in (warning, caught.value.__notes__[0]):
        assert re.search(r"rows-8\.jsonl:\d samples 0", text), text


def assert_weights_are_those_of_the_model(folder: Path, model: Path) -> None:
    before = load_file(model / "model.safetensors")
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(folder).items())


def test_a_model_with_a_weight_that_is_not_a_number_is_refused_before_it_samples(tmp_path: Path) -> None:
    config = tiny_run(tmp_path)
    path = Path(config.model.path) / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="got nan"):
        train(config)


def test_a_run_goes_on_after_a_single_update_that_was_not_finite(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, reward="huge_once", algorithm={"name": "dr_grpo"}, run={"steps": 3})
    lines = stored_metrics(train(config).folder)[1:]
    assert sum(line["update/skipped"] for line in lines) == 1
    assert sum(line["update/applied"] for line in lines) == 2


def test_a_reward_that_float32_cannot_hold_is_invalid_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = train(tiny_run(tmp_path, reward="beyond_float32")).folder
    lines = stored_metrics(folder)[1:]
    assert any(0 < line["samples/error_share"] < 1 for line in lines)
    assert all(line["reward/mean"] <= 1 for line in lines)
    assert sum(line["update/applied"] for line in lines) > 0
