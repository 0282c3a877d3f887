"""Whole offline runs: they learn, resume bit by bit, depend on the batch alone, and refuse what they cannot use."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import strop
from strop.config.dump import dump_config
from strop.config.load import load_offline_config
from strop.config.offline import OfflineConfig
from strop.errors import CheckpointError, ConfigError, DataError, StropError
from strop.metrics.samples import SampleQuery
from strop.trainers.launch import RunResult
from support.command import run_strop
from support.offline import ROWS, offline_run, write_jsonl
from support.runs import assert_same_tensors, checkpoint_tensors, newest_checkpoint, stored_metrics, tiny_run, weights
from support.tiny import tiny_folder

METHODS = ("sft", "dpo", "ipo", "kto")
every_method = pytest.mark.parametrize("method", METHODS)
LEARNING: dict[str, dict[str, Any]] = {"full": {}, "lora": {"model": {"lora": {"rank": 4}}}}


def train(config: OfflineConfig, **options: bool) -> RunResult:
    commands = {"sft": strop.sft, "dpo": strop.dpo, "ipo": strop.ipo, "kto": strop.kto}
    return commands[config.offline.type](config, **options)


def changed(config: OfflineConfig, section: str, **values: Any) -> OfflineConfig:
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


def held_out(folder: Path, method: str, num_rows: int = 4, **settings: Any) -> dict[str, Any]:
    path = write_jsonl(folder / f"{method}-held-out.jsonl", ROWS[method](num_rows, first=100))
    return {"source": {"type": "jsonl", "path": path}, **settings}


@pytest.mark.parametrize("settings", LEARNING.values(), ids=LEARNING.keys())
@every_method
def test_thirty_rows_are_learned_and_held_out_ones_with_them(
    tmp_path: Path, method: str, settings: dict[str, Any]
) -> None:
    config = offline_run(
        tmp_path,
        method,
        rows=30,
        data={"epochs": 3},
        training={"learning_rate": 2e-2 if settings else 3e-3, "batch_size": 8},
        evaluation=held_out(tmp_path, method),
        checkpoint={"every": 0},
        **settings,
    )
    lines = stored_metrics(train(config).folder)
    assert len(lines) == 13  # before, and 90 rows in batches of 8, the last one of 2
    before, after = lines[0], lines[-1]
    if method == "sft":
        assert before["eval/loss"] > 5
        assert after["eval/loss"] < 2.5
        assert after["eval/perplexity"] == pytest.approx(2.718281828 ** after["eval/loss"], rel=1e-6)
        return
    assert before["eval/rewards/margin"] == pytest.approx(0, abs=1e-6)
    assert after["eval/rewards/margin"] > (0.2 if method == "ipo" else 2)
    assert after["eval/loss"] < 0.5 * before["eval/loss"]
    if method != "kto":
        assert after["eval/rewards/accuracy"] == 1


RESUMED: dict[str, tuple[str, dict[str, Any]]] = {
    **{method: (method, {}) for method in METHODS},
    "sft_lora": ("sft", {"model": {"lora": {"rank": 2}}}),
    "dpo_lora": ("dpo", {"model": {"lora": {"rank": 2}}}),
    "sft_schedule": ("sft", {"training": {"schedule": "cosine", "warmup_updates": 2}}),
    "sft_bfloat16": ("sft", {"model": {"dtype": "bfloat16"}}),
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_resumed_run_is_bit_by_bit_the_whole_one(tmp_path: Path, case: str) -> None:
    method, settings = RESUMED[case]
    config = offline_run(tmp_path, method, evaluation=held_out(tmp_path, method, every=2), **settings)
    if case == "sft_schedule":
        config = changed(config, "training", schedule_updates=5)
    whole = train(config)
    assert whole.steps == 5  # 14 rows in batches of 3
    parts = changed(config, "run", name="parts", steps=2)
    assert train(parts).steps == 2
    resumed = train(changed(config, "run", name="parts"), resume=True)
    assert resumed.steps == 5
    assert_same_tensors(checkpoint_tensors(resumed.folder), checkpoint_tensors(whole.folder))
    ended, straight = stored_metrics(resumed.folder), stored_metrics(whole.folder)
    at_the_stop = ended.pop(2), straight.pop(2)
    assert ended == straight
    assert at_the_stop[0]["update/loss"] == at_the_stop[1]["update/loss"]


@every_method
def test_micro_batches_change_no_weight_beyond_rounding(tmp_path: Path, method: str) -> None:
    config = offline_run(tmp_path, method, data={"epochs": 1})
    one = train(changed(config, "run", name="one"))
    config = changed(config, "training", micro_batch_tokens=1)
    many = train(changed(config, "run", name="many"))
    counts = [sum(line.get("update/micro_batches", 0) for line in stored_metrics(run.folder)) for run in (one, many)]
    assert counts == [3, 7]
    for name, value in weights(one.folder).items():
        torch.testing.assert_close(weights(many.folder)[name], value, rtol=1e-3, atol=2e-5)


def test_the_last_batch_is_as_small_as_it_must_be_and_every_row_is_trained_once_an_epoch(tmp_path: Path) -> None:
    lines = stored_metrics(train(offline_run(tmp_path, rows=7, training={"batch_size": 4})).folder)
    whole = stored_metrics(
        train(offline_run(tmp_path, rows=7, run={"name": "whole"}, training={"batch_size": 7})).folder
    )
    assert [line["offline/epoch"] for line in lines[1:]] == pytest.approx([4 / 7, 8 / 7, 12 / 7, 2])
    per_epoch = whole[1]["tokens/trained"]
    assert sum(line["tokens/trained"] for line in lines[1:]) == 2 * per_epoch


@pytest.mark.parametrize("family", ["gemma3", "qwen3_moe", "qwen3_next"])
@every_method
def test_other_families_are_trained_too(tmp_path: Path, method: str, family: str) -> None:
    """Sliding windows, experts, and recurrent layers, whose rows are computed one by one."""
    model = {"path": str(tiny_folder(tmp_path, family))}
    lines = stored_metrics(train(offline_run(tmp_path, method, rows=4, model=model, checkpoint={"every": 0})).folder)
    assert lines[-1]["offline/loss"] < lines[1]["offline/loss"]


def test_prompts_of_a_pair_are_computed_once(tmp_path: Path) -> None:
    (_, line) = stored_metrics(train(offline_run(tmp_path, "dpo", rows=3, data={"epochs": 1})).folder)
    told = strop.dry_run_offline(offline_run(tmp_path, "dpo", rows=3))
    num_tokens = int(told.lines[1].split(", ")[1].split()[0])
    assert line["tokens/computed"] < 0.75 * num_tokens


@every_method
def test_a_checkpoint_is_exported_for_transformers(tmp_path: Path, method: str) -> None:
    from transformers import AutoModelForCausalLM

    folder = train(offline_run(tmp_path, method, run={"steps": 1}, model={"lora": {"rank": 2}})).folder
    out = strop.export(folder, None, tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(out)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "llama-0")
    moved = [name for name, value in model.named_parameters() if not torch.equal(value, base.get_parameter(name))]
    assert moved


def test_good_samples_of_a_run_are_learned_token_by_token(tmp_path: Path) -> None:
    sampled = strop.train(tiny_run(tmp_path, run={"name": "online", "steps": 3})).folder
    good = list(strop.samples(sampled, SampleQuery(minimum_reward=0.5)))
    source = {"type": "samples", "path": sampled, "minimum_reward": 0.5}
    config = offline_run(tmp_path, data={"source": source, "epochs": 1}, training={"batch_size": 100})
    (_, line) = stored_metrics(train(config).folder)
    assert good
    assert line["tokens/trained"] == sum(found.sample.num_sampled_tokens for found in good)
    none = changed(config, "data", source=config.data.source.model_copy(update={"minimum_reward": 9.0}))
    with pytest.raises(DataError, match="must hold samples with a reward of at least 9, got none"):
        train(none, overwrite=True)


def test_samples_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    sampled = strop.train(tiny_run(tmp_path, run={"name": "online", "steps": 1})).folder
    other = tiny_folder(tmp_path, seed=5)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    source = {"type": "samples", "path": sampled, "minimum_reward": 0.0}
    with pytest.raises(DataError, match=r"must have the tokenizer of model\.path"):
        train(offline_run(tmp_path, model={"path": str(other)}, data={"source": source}))


def test_ctrl_c_ends_a_run_between_two_steps_and_it_goes_on_from_there(tmp_path: Path) -> None:
    config = offline_run(tmp_path, run={"steps": 2000}, data={"epochs": None}, checkpoint={"every": 1000})
    lines = config.run.output_dir / "sft" / "metrics.jsonl"

    def interrupt() -> None:
        while not (lines.exists() and lines.read_text().count("\n") > 3):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    stopped = train(config)
    thread.join()
    assert stopped.was_interrupted
    assert 3 <= stopped.steps < 2000
    steps = stopped.steps + 2
    resumed = train(changed(config, "run", steps=steps), resume=True)
    whole = train(changed(config, "run", name="whole", steps=steps))
    assert_same_tensors(checkpoint_tensors(resumed.folder), checkpoint_tensors(whole.folder))
    assert stored_metrics(resumed.folder) == stored_metrics(whole.folder)


# ------------------------------------------------------------------------------------ refused in seconds


def refused(config: OfflineConfig, match: str, kind: type[StropError] = ConfigError) -> None:
    with pytest.raises(kind, match=match):
        train(config)
    assert not (config.run.output_dir / config.run.name).exists()


def test_a_broken_row_is_named_by_file_and_line_before_anything_is_written(tmp_path: Path) -> None:
    config = offline_run(tmp_path)
    path = config.data.source.path
    with path.open("a") as file:
        file.write('{"messages": [{"role": "user", "content": "hello"}]}\n{"messages": \n')
    refused(config, r"sft-7.jsonl, line 9: must be one JSON object(.|\n)*line 8: .*assistant turn", DataError)
    skipping = changed(config, "data", on_bad_row="skip")
    assert "2 of 9 rows skipped: bad" in str(strop.dry_run_offline(skipping))


def test_held_out_rows_that_are_trained_on_are_told(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "mixed.jsonl", [*ROWS["sft"](2), *ROWS["sft"](3, first=50)])
    config = offline_run(tmp_path, evaluation={"source": {"type": "jsonl", "path": path}})
    assert "2 of the 5 held-out rows are training rows too" in strop.dry_run_offline(config).lines


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "batches of kto": ("kto", {"training": {"batch_size": 1}}, "training.batch_size must be at least 2 with kto"),
    "updates": ("sft", {"training": {"updates_per_batch": 2}}, "training.updates_per_batch does nothing"),
    "epochs": ("sft", {"training": {"epochs_per_batch": 2}}, "training.epochs_per_batch does nothing"),
    "processes": ("sft", {"training": {"shard_size": 1}}, "training.shard_size does nothing"),
    "endless": ("sft", {"data": {"epochs": None}}, "run.steps must be given where data.epochs is left open"),
    "column": ("sft", {"data": {"columns": {"mesages": "m"}}}, "got 'mesages'. Did you mean messages"),
    "sampler": ("sft", {"model": {"rollout_dtype": "bfloat16"}}, "model.rollout_dtype does nothing"),
    "samples": ("sft", {"metrics": {"save_samples": False}}, "metrics.save_samples does nothing"),
    "source": ("dpo", {"data": {"source": {"type": "samples", "path": "x"}}}, "must be jsonl, parquet or hub with dpo"),
    "minimum": ("sft", {"training": {"minimum_learning_rate": 1e-5}}, "training.minimum_learning_rate does nothing"),
    "falling": (
        "sft",
        {"training": {"schedule": "linear", "minimum_learning_rate": 1e-1}},
        "training.minimum_learning_rate must be below",
    ),
    "best": ("sft", {"checkpoint": {"keep_best": "eval/loss"}}, "checkpoint.keep_best does nothing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_cannot_work_are_refused(tmp_path: Path, case: str) -> None:
    method, settings, message = REFUSED[case]
    refused(offline_run(tmp_path, method, **settings), message)


def test_the_lowest_held_out_loss_is_kept(tmp_path: Path) -> None:
    best = {"keep_best": "eval/loss", "keep": 1, "every": 1}
    config = offline_run(
        tmp_path,
        training={"learning_rate": 0.5},
        checkpoint=best,
        evaluation=held_out(tmp_path, "sft", every=1),
    )
    refused(config, 'checkpoint.best_is must be "lowest"')
    folder = train(changed(config, "checkpoint", best_is="lowest")).folder
    losses = {line["step"]: line["eval/loss"] for line in stored_metrics(folder) if line["step"]}
    kept = {int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*")}
    assert kept == {min(losses, key=lambda step: losses[step]), 5}


def test_a_run_is_resumed_with_its_own_rows_and_method_only(tmp_path: Path) -> None:
    config = offline_run(tmp_path, run={"steps": 1})
    train(config)
    with pytest.raises(CheckpointError, match="the rows must be those of the checkpoint"):
        train(changed(offline_run(tmp_path, rows=8), "run", name="sft"), resume=True)
    with pytest.raises(ConfigError, match="must hold a run of dpo to resume it, got one of sft"):
        train(offline_run(tmp_path, "dpo", run={"name": "sft"}), resume=True)


def test_a_run_without_a_checkpoint_starts_over_when_resumed(tmp_path: Path) -> None:
    config = offline_run(tmp_path)
    whole = train(config).folder
    expected, lines = checkpoint_tensors(whole), stored_metrics(whole)
    shutil.rmtree(newest_checkpoint(whole).parent)
    train(config, resume=True)
    assert_same_tensors(checkpoint_tensors(whole), expected)
    assert stored_metrics(whole) == lines


# ------------------------------------------------------------------------------------------ the command


def test_the_commands_train_resume_and_name_the_method(tmp_path: Path) -> None:
    config = offline_run(tmp_path, "dpo", run={"steps": 2})
    run_file = tmp_path / "run.toml"
    run_file.write_text(dump_config(config).replace('type = "dpo"\n', "", 1))
    assert load_offline_config(run_file, method="dpo") == config
    planned = run_strop("dpo", str(run_file), "--dry-run")
    assert "dpo with beta 0.1" in planned.stdout
    assert "nothing was trained" in planned.stdout
    done = run_strop("dpo", str(run_file))
    assert done.returncode == 0, done.stderr
    assert "strop export" in done.stdout
    more = run_strop("dpo", str(run_file), "run.steps=3", "--resume")
    assert "going on behind step 2" in more.stdout
    assert "done after 3 steps" in more.stdout
    wrong = run_strop("sft", str(run_file), "offline.type=dpo")
    assert wrong.returncode == 2
    assert "Run it with `strop dpo`" in wrong.stderr
