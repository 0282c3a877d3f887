"""Whatever is wrong with what a person gave ends in seconds with a message that helps, and nothing is lost."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from support.boundary import Outcome, assert_refused, strop
from support.command import run_strop
from support.run_world import make_world

RUN_FILE = """
[run]
output_dir = "runs"
steps = 1
threads = 1
device = "cpu"
[model]
path = "WORLD/model"
[data]
task = "columns"
source = { type = "jsonl", path = "WORLD/rows.jsonl" }
[[rewards]]
function = "WORLD/rewards.py:spread"
[rollout]
prompts_per_step = 2
group_size = 2
max_new_tokens = 4
[weight_sync]
probe_tokens = 4
[checkpoint]
every = 1
"""
MAX_SECONDS = 30
"""For a process of its own, two seconds of import and other work on the machine included."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a run file that works."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(RUN_FILE.replace("WORLD", str(world)), encoding="utf-8")
    return tmp_path


def train(*arguments: object) -> Outcome:
    return strop("train", "run.toml", *arguments)


def test_the_run_file_that_the_others_spoil_works() -> None:
    assert train().exit_code == 0
    assert Path("runs/run/metrics.jsonl").exists()


# ------------------------------------------------------------------------------------------ the run file

REFUSED_RUN_FILES = {
    "an_unknown_key": (
        ["training.learning_rat=1"],
        ["training.learning_rat is not a key", "did you mean training.learning_rate?"],
    ),
    "a_value_of_another_kind": (["run.steps=many"], ["run.steps must be a whole number, at least 0, got 'many'"]),
    "an_unknown_task": (["data.task=gsm"], ["got 'gsm'", "Did you mean gsm8k?"]),
    "an_unknown_generator": (
        [
            "data.task=reasoning_gym:chain_sums",
            "data.source={type='reasoning_gym', name='chain_sums'}",
            "rewards.0.function=task",
        ],
        ["'chain_sums'", "did you mean 'chain_sum'?"],
    ),
    "a_group_of_one": (["rollout.group_size=1"], ["rollout.group_size must be at least 2", "got 1"]),
    "a_nucleus_in_training": (["rollout.top_p=0.9"], ["rollout.top_p must be 1 in training, got 0.9"]),
    "an_empty_stop_string": (["rollout.stop_strings=['']"], ["rollout.stop_strings must hold no empty text"]),
    "a_key_that_does_nothing": (["algorithm.clip_low=0.1"], ["algorithm.clip_low does nothing"]),
    "an_evaluation_on_the_training_rows": (
        [
            "data.source={type='reasoning_gym', name='chain_sum', size=10}",
            "evaluation.source={type='reasoning_gym', name='chain_sum', size=10, seed=5}",
        ],
        ["evaluation.source.seed must leave the rows apart", "5 rows would be in both", "to 10 or more"],
    ),
    "a_cache_for_not_even_one_sample": (
        ["rollout.max_cache_tokens=20"],
        ["rollout.max_cache_tokens must hold the longest prompt and its sample", "got 20"],
    ),
    "a_probe_longer_than_the_model": (
        ["weight_sync.probe_tokens=600"],
        ["weight_sync.probe_tokens must be at most the model's maximum (512), got 600"],
    ),
    "more_threads_than_processors": (["run.threads=99999"], ["run.threads must be at most", "got 99999"]),
    "a_sample_longer_than_the_model": (
        ["rollout.max_new_tokens=512"],
        ["rollout.max_new_tokens must leave room for a prompt", "512"],
    ),
    "a_length_above_the_models": (
        ["model.max_length=9999"],
        ["model.max_length must be at most the model's own 512, got 9999"],
    ),
    "a_prompt_limit_without_room": (
        ["data.max_prompt_tokens=511"],
        ["data.max_prompt_tokens must be at most 508", "got 511"],
    ),
    "an_output_folder_that_is_a_file": (["run.output_dir=run.toml"], ["must be in a folder that can be written to"]),
    "a_device_that_is_not_there": (["run.device=npu"], ["run.device is npu", "torch_npu"]),
    "a_template_argument_that_nothing_reads": (["data.chat_template_kwargs.thinking=true"], ["thinking"]),
}


@pytest.mark.parametrize("name", REFUSED_RUN_FILES)
def test_a_run_file_that_cannot_work_is_refused(name: str, folder: Path) -> None:
    overrides, fragments = REFUSED_RUN_FILES[name]
    assert_refused(train(*overrides), *fragments)
    assert not (folder / "runs").exists()


def test_broken_toml_names_its_line() -> None:
    Path("run.toml").write_text("[run]\nsteps = = 1\n")
    assert_refused(train(), "run.toml must be valid TOML", "line 2")


def test_every_problem_of_a_run_file_is_told_at_once() -> None:
    outcome = train("rollout.group_size=1", "rollout.top_k=3", "checkpoint.best_is=lowest")
    assert_refused(outcome, "rollout.group_size", "rollout.top_k", "checkpoint.best_is")


@pytest.mark.parametrize("command", ["train", "eval"])
def test_a_refused_combination_is_refused_by_every_command(command: str) -> None:
    assert_refused(strop(command, "run.toml", "rollout.group_size=1"), "rollout.group_size must be at least 2")


def test_an_evaluation_needs_a_section() -> None:
    assert_refused(strop("eval", "run.toml"), "there must be an [evaluation] section")


# ------------------------------------------------------------------------------------------ the model


def test_a_mistyped_local_model_names_the_nearest(world: Path) -> None:
    assert_refused(train(f"model.path={world}/modle"), "must be an existing folder or a hub id", f"{world}/model")


def test_a_hub_model_that_cannot_be_reached_is_said() -> None:
    outcome = train("model.path=some-owner/absent")
    assert_refused(outcome, "some-owner/absent", "the hub cannot be reached", "Correct model.path, or go online once")


def broken_model(world: Path) -> Path:
    """A model whose weight file ends too early."""
    broken = shutil.copytree(world / "model", Path.cwd() / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return broken


def test_a_truncated_checkpoint_names_the_file_and_both_sizes(world: Path) -> None:
    broken = broken_model(world)
    size = (broken / "model.safetensors").stat().st_size
    promised = (world / "model" / "model.safetensors").stat().st_size
    outcome = train(f"model.path={broken}")
    assert_refused(
        outcome, "must be a whole safetensors file", f"got {size} bytes where its header promises {promised}"
    )


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_adapters_for_modules_that_are_not_there_are_refused_before_any_weight_is_read(
    flags: list[str], world: Path
) -> None:
    outcome = train(f"model.path={broken_model(world)}", "model.lora.target_modules=['q_prj']", *flags)
    assert_refused(outcome, "model.lora.target_modules must name linear layers", "'q_prj'", "Did you mean q_proj?")


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_a_sink_that_is_not_installed_is_refused_before_any_weight_is_read(
    flags: list[str], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    outcome = train(f"model.path={broken_model(world)}", "metrics.sinks=['wandb']", *flags)
    assert_refused(outcome, "got wandb, not installed", 'pip install "strop[wandb]"')


def test_a_broken_model_does_not_cost_the_run_that_it_would_replace(world: Path) -> None:
    assert train().exit_code == 0
    before = tree(Path("runs"))
    assert_refused(train(f"model.path={broken_model(world)}", "--overwrite"), "whole safetensors file")
    assert tree(Path("runs")) == before


def test_a_run_that_never_began_leaves_no_folder_in_the_way(world: Path) -> None:
    assert_refused(train(f"model.path={broken_model(world)}"), "whole safetensors file")
    assert train().exit_code == 0


def test_a_model_without_weights_is_said(world: Path) -> None:
    assert_refused(train(f"model.path={without_weights(world)}"), "must hold weights")


def without_weights(world: Path) -> Path:
    """A model that has everything but its weights: what is found with it was found before any weight was loaded."""
    empty = shutil.copytree(world / "model", Path.cwd() / "weightless")
    (empty / "model.safetensors").unlink()
    return empty


# ------------------------------------------------------------------------------------------ the data


def data_file(text: str, name: str = "data.jsonl") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return f"data.source.path={name}"


@pytest.mark.parametrize("text", ["", "\n \n\n"])
def test_a_data_file_without_rows_is_said(text: str) -> None:
    assert_refused(train(data_file(text)), "data.jsonl must hold one JSON object a line, got an empty file")


@pytest.mark.parametrize("row", ['{"prompt": "a"', '["prompt"]', "nonsense"])
def test_a_malformed_row_is_named_by_file_and_line(row: str) -> None:
    text = f'{{"prompt": "a"}}\n\n{row}\n{{"prompt": "b"}}\n'
    assert_refused(train(data_file(text)), "data.jsonl, line 3: must be", row[:8])


def test_a_missing_data_file_is_named() -> None:
    assert_refused(train("data.source.path=absent.jsonl"), "absent.jsonl must be a JSONL file, got no such file")


def test_a_wrong_column_lists_those_found_and_the_nearest() -> None:
    outcome = train("data.prompt_column=promt")
    assert_refused(
        outcome, "data.prompt_column", "'promt'", "did you mean 'prompt'?", "columns found: answer, prompt, question"
    )


def test_a_row_that_lacks_the_column_is_named() -> None:
    outcome = train(data_file('{"prompt": "a"}\n{"pormpt": "b"}\n'))
    assert_refused(outcome, "data.jsonl, line 2", "did you mean 'pormpt'?", 'data.on_bad_row = "skip"')


def test_bad_rows_are_left_out_and_told_where_asked(world: Path) -> None:
    rows = data_file('{"prompt": "a"}\n{"prompt": 7}\nnot json\n{"prompt": "b\\u0000"}\n{"prompt": "c"}\n')
    counted = train("--dry-run", rows, f"model.path={without_weights(world)}", "data.on_bad_row=skip")
    assert counted.exit_code == 0
    assert "2 prompts from data.jsonl" in counted.stdout
    assert "data.jsonl: 3 of 5 rows skipped: bad" in counted.stdout
    assert all(f"data.jsonl, line {line}: " in counted.stdout for line in (2, 3, 4))


def test_a_parquet_file_without_rows_is_said() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), "empty.parquet")
    assert_refused(train("data.source={type='parquet', path='empty.parquet'}"), "must hold rows, got an empty")


def test_prompts_over_the_limit_are_counted_before_any_weight_is_loaded(world: Path) -> None:
    model = f"model.path={without_weights(world)}"
    counted = train("--dry-run", model, "data.max_prompt_tokens=28")
    assert counted.exit_code == 0
    assert "rows.jsonl: 4 of 6 rows dropped: overlong (up to 30 tokens, limit 28)" in counted.stdout
    refused = train(model, "data.max_prompt_tokens=28", "data.on_overlong=error")
    assert_refused(refused, "4 of 6 prompts of rows.jsonl are overlong: 28 tokens", "rows.jsonl, line 2) has 29")


def test_only_prompts_over_the_limit_are_an_error_with_both_numbers(world: Path) -> None:
    outcome = train(f"model.path={without_weights(world)}", "data.max_prompt_tokens=5")
    assert_refused(
        outcome, "every one of the 6 prompts of rows.jsonl is overlong: 5 tokens are allowed, the shortest has 28"
    )


HELD_OUT = "evaluation.source={type='jsonl', path='held_out.jsonl'}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["data.max_prompt_tokens=60"],
            "every one of the 2 prompts of held_out.jsonl is overlong: 60 tokens are allowed",
        ),
        (["rollout.max_cache_tokens=60"], "must hold the longest prompt of evaluation.source and its sample"),
        (["evaluation.max_new_tokens=512"], "evaluation.max_new_tokens must leave room for a prompt"),
    ],
)
def test_held_out_prompts_that_do_not_fit_are_named_by_their_source(
    overrides: list[str], message: str, world: Path
) -> None:
    Path("held_out.jsonl").write_text(f'{{"prompt": "{"a word " * 30}"}}\n' * 2, encoding="utf-8")
    assert_refused(train("--dry-run", HELD_OUT, f"model.path={without_weights(world)}", *overrides), message)


# ------------------------------------------------------------------------------------------ the rewards


def reward(code: str, name: str = "judge") -> str:
    Path("my_reward.py").write_text(code, encoding="utf-8")
    return f"rewards.0.function=my_reward.py:{name}"


BROKEN_REWARDS = {
    "a_syntax_error": (
        "def judge(completion):\n    return 1 +\n",
        ["my_reward.py cannot be loaded: line 2: SyntaxError"],
    ),
    "an_error_while_it_is_read": ("import math\n\nmath.no_such()\n", ["line 3: AttributeError"]),
    "a_missing_function": (
        "def juge(completion):\n    return 1\n",
        ["must have the function 'judge'", "did you mean 'juge'?"],
    ),
    "something_that_is_no_function": ("judge = 3\n", ["my_reward.py must be a function, got int", "'judge'"]),
    "an_unknown_column": (
        "def judge(completion, anser):\n    return 1\n",
        ["'anser'", "did you mean 'answer'?", "columns found: answer, prompt, question"],
    ),
    "no_completion": ("def judge(answer):\n    return 1\n", ["must take `completion`", "`completions`"]),
}


@pytest.mark.parametrize("name", BROKEN_REWARDS)
def test_a_reward_that_cannot_be_used_is_refused_before_any_weight_is_loaded(name: str, world: Path) -> None:
    code, fragments = BROKEN_REWARDS[name]
    assert_refused(train(reward(code), f"model.path={without_weights(world)}"), *fragments)


def test_a_missing_reward_file_is_named() -> None:
    assert_refused(
        train("rewards.0.function=absent.py:judge"), "absent.py must be a readable Python file, got no such file"
    )


def test_an_argument_that_the_reward_does_not_take_is_refused(world: Path) -> None:
    assert_refused(train("rewards.0.arguments.shfit=1"), "got 'shfit'", "did you mean 'shift'?")


def test_a_gold_answer_that_no_response_can_match_is_named_by_its_row(world: Path) -> None:
    rows = data_file(json.dumps({"question": "1 + 1", "answer": "none at all"}))
    outcome = train(rows, "data.task=gsm8k", "rewards.0.function=task", f"model.path={without_weights(world)}")
    assert_refused(outcome, "data.jsonl, line 1", "gold answer", "got 'none at all'")


def test_gold_answers_that_their_grader_does_not_like_refuse_the_run_and_are_shown(world: Path) -> None:
    wrong = (
        "data.source={type='reasoning_gym', name='countdown', size=7}",
        "data.task=reasoning_gym:countdown",
        "data.answer_column=question",
        "rewards.0.function=task",
        f"model.path={without_weights(world)}",
    )
    refused = train(*wrong)
    assert_refused(
        refused, "at least 100.0% of the rows of reasoning_gym:countdown", "got 0.0% of 7 rows", "and 2 more"
    )
    told = train("--dry-run", *wrong, "data.self_test_share=0")
    assert told.exit_code == 0
    assert "note: 7 gold answers fail their grader" in told.stdout


# ------------------------------------------------------------------------------------------ run folders


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def finished_run() -> dict[str, bytes]:
    """The files of a finished run in the current directory."""
    assert train().exit_code == 0
    return tree(Path("runs"))


def test_a_run_is_never_written_over_unasked(finished_run: dict[str, bytes]) -> None:
    assert_refused(train(), "already holds a run", "--resume", "run.name", "--overwrite")
    assert tree(Path("runs")) == finished_run


def test_resume_and_overwrite_contradict_each_other(finished_run: dict[str, bytes]) -> None:
    assert_refused(train("--resume", "--overwrite"), "contradict")
    assert tree(Path("runs")) == finished_run


def test_a_folder_with_other_files_is_no_run_folder() -> None:
    Path("runs/run").mkdir(parents=True)
    Path("runs/run/thesis.txt").write_text("dear")
    for flags in ([], ["--overwrite"]):
        assert_refused(train(*flags), "must be empty or a run folder, got other files")
    assert Path("runs/run/thesis.txt").read_text() == "dear"


def test_there_must_be_a_run_to_resume() -> None:
    assert_refused(train("--resume"), "there must be a run in runs/run to resume, got none")


OTHER_RUNS = {
    "another_model": (["model.path=WORLD/other-model"], "model.path must be that of the run"),
    "adapters": (["model.lora.rank=4"], "model.lora must be that of the run"),
    "other_rows": (["data.source.path=WORLD/other.jsonl"], "6 prompts then, 4 now"),
    "another_prompt": (["data.instruction=Think."], "data, task, chat template or tokenizer have changed"),
    "another_seed": (["run.seed=5"], "seed of the prompt stream must be that of the checkpoint (0), got 5"),
}


@pytest.mark.parametrize("name", OTHER_RUNS)
def test_a_run_is_resumed_with_what_it_began_with_or_not_at_all(
    name: str, world: Path, finished_run: dict[str, bytes]
) -> None:
    overrides, message = OTHER_RUNS[name]
    assert_refused(
        train("--resume", "run.steps=2", *(text.replace("WORLD", str(world)) for text in overrides)), message
    )
    assert tree(Path("runs")) == finished_run
    assert train("--resume", "run.steps=2").exit_code == 0


# ------------------------------------------------------------------------------------------ other commands


def test_the_other_commands_name_what_is_missing(finished_run: dict[str, bytes]) -> None:
    assert_refused(strop("export", "absent", "out"), "absent must be the folder of a run")
    assert_refused(strop("export", "runs/run", "out", "--step", "7"), "must hold a checkpoint of step 7, got steps: 1")
    assert_refused(strop("samples", "absent"), "absent")
    assert_refused(strop("samples", "runs/run", "--step", "7"), "must hold samples of step 7")
    assert_refused(strop("generate", "absent/model/", "Hello"), "must be an existing folder or a hub id")
    assert_refused(strop("grade", "absent.jsonl"), "the file to grade must exist, got absent.jsonl")


def test_a_damaged_checkpoint_is_named_and_not_evaluated(finished_run: dict[str, bytes], world: Path) -> None:
    step = Path("runs/run/checkpoints/step-00000001")
    weights = step / "engine" / "parameters.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    evaluation = f"evaluation.source={{type='jsonl', path='{world}/held-out.jsonl'}}"
    assert_refused(strop("eval", "run.toml", evaluation, "--checkpoint", step), "parameters.safetensors")
    assert_refused(train("--resume", "run.steps=2"), "none is whole", "parameters.safetensors must have")
    assert_refused(strop("export", "runs/run", "out"), "parameters.safetensors")
    assert not Path("out").exists()


# ------------------------------------------------------------------------------------------ in a process of its own


def test_a_reward_that_never_returns_does_not_keep_the_process_alive(folder: Path) -> None:
    override = reward("import threading\n\n\ndef judge(completion):\n    threading.Event().wait()\n")
    started = time.monotonic()
    result = run_strop("train", "run.toml", override, "rewards.0.timeout_seconds=0.1", folder=folder)
    assert time.monotonic() - started < MAX_SECONDS
    assert result.returncode == 2, result.stderr
    assert "got no valid reward in 1 steps" in result.stderr
    assert "must return within 0.1 seconds, and did not; it was killed in " in result.stdout


ALONE = {
    "a_refused_key": (["rollout.group_size=1"], "rollout.group_size must be at least 2"),
    "a_malformed_row": (["data.source.path=bad.jsonl"], "bad.jsonl, line 2"),
    "a_truncated_model": (["model.path=broken"], "must be a whole safetensors file"),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_mistake_ends_the_process_in_seconds_with_a_message_alone(name: str, folder: Path, world: Path) -> None:
    overrides, message = ALONE[name]
    broken_model(world)
    Path("bad.jsonl").write_text('{"prompt": "a"}\n{"prompt"\n')
    started = time.monotonic()
    result = run_strop("train", "run.toml", *overrides, folder=folder, variables={"HF_HUB_OFFLINE": "1"})
    assert time.monotonic() - started < MAX_SECONDS
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "runs").exists()
