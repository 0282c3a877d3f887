"""Stopping after a step and resuming is as if the run had never stopped."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from strop.api import train
from strop.checkpoint.manifest import Manifest
from strop.errors import CheckpointError
from strop.metrics.samples import SampleStore
from support.runs import (
    assert_same_run,
    assert_same_tensors,
    checkpoint_tensors,
    held_out,
    newest_checkpoint,
    stored_metrics,
    stored_samples,
    tiny_run,
)

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "across_an_epoch_end": {"rows": 5},
    "several_updates_a_batch": {"training": {"learning_rate": 1e-3, "updates_per_batch": 2, "epochs_per_batch": 2}},
    "kl_to_a_reference": {"algorithm": {"kl_coefficient": 0.1}},
    "lora": {"model": {"lora": {"rank": 2}}},
    "lora_with_kl": {"model": {"lora": {"rank": 2}}, "algorithm": {"kl_coefficient": 0.1}},
    "learning_rate_schedule": {
        "training": {"learning_rate": 1e-3, "warmup_updates": 3, "schedule": "linear", "schedule_updates": 5}
    },
    "bfloat16_with_float32_masters": {"model": {"dtype": "bfloat16"}},
}


def stop_and_resume(folder: Path, stop_after: int, **settings: Any) -> tuple[Path, Path]:
    """Returns the folders of a run of 4 steps, and of one that was stopped in between."""
    whole = tiny_run(folder, **settings)
    parts = [
        whole.model_copy(update={"run": whole.run.model_copy(update={"name": "parts", "steps": steps})})
        for steps in (stop_after, whole.run.steps)
    ]
    train(parts[0])
    resumed = train(parts[1], resume=True)
    assert resumed.steps == whole.run.steps
    return train(whole).folder, resumed.folder


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_two_steps_and_two_resumed_ones_are_four_steps(tmp_path: Path, settings: dict[str, Any]) -> None:
    whole, parts = stop_and_resume(tmp_path, 2, **settings)
    assert_same_run(parts, whole)


def test_a_resumed_run_evaluates_as_the_whole_one(tmp_path: Path) -> None:
    whole, parts = stop_and_resume(tmp_path, 2, evaluation=held_out(tmp_path, every=2, samples=2, pass_at=[2]))
    assert_same_run(parts, whole)
    assert (parts / "evaluations.json").read_text() == (whole / "evaluations.json").read_text()
    assert "eval/sampled/accuracy" in stored_metrics(whole)[0]


def test_a_run_that_has_no_checkpoint_yet_starts_over_when_resumed(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, evaluation=held_out(tmp_path), run={"steps": 2})
    whole = train(config).folder
    other = config.model_copy(update={"run": config.run.model_copy(update={"name": "other"})})
    folder = train(other).folder
    for checkpoint in (folder / "checkpoints").glob("step-*"):
        shutil.rmtree(checkpoint)
    train(other, resume=True)
    assert_same_run(folder, whole)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, run={"steps": 2}, evaluation=held_out(tmp_path))
    folder = train(config).folder
    tensors, records = checkpoint_tensors(folder), (stored_samples(folder), stored_metrics(folder))
    assert train(config, resume=True).steps == 2
    assert (stored_samples(folder), stored_metrics(folder)) == records
    assert_same_tensors(checkpoint_tensors(folder), tensors)


def test_what_changed_between_stop_and_resume_is_told_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_run(tmp_path, run={"steps": 1})
    longer = config.model_copy(update={"run": config.run.model_copy(update={"steps": 2})})
    train(config)
    rewards, rows = tmp_path / "rewards.py", tmp_path / "rows-8.jsonl"
    capsys.readouterr()
    rows.write_text(rows.read_text().replace('"answer": "3"', '"answer": "4"'))
    with pytest.raises(CheckpointError, match="columns, such as gold answers, have changed"):
        train(longer, resume=True)
    rows.write_text(
        rows.read_text().replace('"question": "What is 3", "answer": "4"', '"question": "What is 3", "answer": "3"')
    )
    train(longer, resume=True)
    assert "another text in the file of" not in capsys.readouterr().out
    rewards.write_text(rewards.read_text() + "\n# another rubric\n")
    train(longer, resume=True)
    assert f"note: resumed with another text in the file of: {rewards}:spread" in capsys.readouterr().out.replace(
        "\n", ""
    )


def test_what_was_written_after_the_checkpoint_is_cut(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, evaluation=held_out(tmp_path, every=1), checkpoint={"every": 1, "keep": 4})
    folder = train(config).folder
    for step in (3, 4):
        shutil.rmtree(folder / "checkpoints" / f"step-{step:08d}")
    shorter = config.model_copy(update={"run": config.run.model_copy(update={"steps": 2})})
    train(shorter, resume=True)
    assert list(stored_samples(folder)) == ["step_000001.jsonl.gz", "step_000002.jsonl.gz"]
    assert [line["step"] for line in stored_metrics(folder)] == [0, 1, 2]
    assert list(json.loads((folder / "evaluations.json").read_text())) == ["0", "1", "2"]


def test_the_checkpoint_at_the_end_keeps_the_scores_of_the_evaluation_before_it(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, run={"steps": 2}, evaluation=held_out(tmp_path, every=1), checkpoint={"every": 10})
    manifest = Manifest.read(newest_checkpoint(train(config).folder))
    assert manifest.step == 2
    assert (
        manifest.scores["eval/sampled/accuracy"]
        == stored_metrics(config.run.output_dir / "run")[2]["eval/sampled/accuracy"]
    )


def test_a_second_epoch_draws_other_samples_from_the_same_prompts(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, rows=2, run={"steps": 2}, training={"learning_rate": 1e-12})
    store = SampleStore(train(config).folder / "samples")
    texts = [
        {(group.prompt_id, sample.text) for group in store.read(step) for sample in group.samples} for step in (1, 2)
    ]
    assert {prompt for prompt, _ in texts[0]} == {prompt for prompt, _ in texts[1]}
    assert not texts[0] & texts[1]


@pytest.mark.parametrize(("rows", "prompts_per_step"), [(7, 4), (3, 8), (5, 2), (1, 1)])
def test_every_row_of_an_epoch_is_trained_once_whatever_the_batch(
    tmp_path: Path, rows: int, prompts_per_step: int
) -> None:
    config = tiny_run(
        tmp_path,
        rows=rows,
        run={"steps": 50},
        data={"epochs": 1},
        rollout={"prompts_per_step": prompts_per_step, "group_size": 2},
    )
    result = train(config)
    trained = trained_prompts(result.folder)
    assert len(trained) == len(set(trained)) == rows
    assert result.steps == -(-rows // prompts_per_step)


def trained_prompts(folder: Path) -> list[str]:
    store = SampleStore(folder / "samples")
    return [group.prompt_id for step in store.steps() for group in store.read(step) if group.trained]
