"""What one does with a run folder afterwards: export, evaluate, generate, browse, all through the command line."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from strop.api import generate, open_session, train
from strop.cli.main import app
from strop.config.model import ModelConfig
from strop.config.root import Config
from strop.records import SamplingParams
from support.command import run_strop
from support.runs import held_out, newest_checkpoint, tiny_run, write_run_file
from support.training import relative_error


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    config: Config
    folder: Path
    run_file: Path


@pytest.fixture(scope="module", params=["full", "lora"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp(request.param)
    config = tiny_run(
        folder,
        run={"steps": 2},
        training={"learning_rate": 1e-2},
        model={"lora": {"rank": 2}} if request.param == "lora" else {},
        evaluation=held_out(folder, every=1, samples=2),
    )
    return Trained(config, train(config).folder, write_run_file(config, folder / "run.toml"))


def strop(*arguments: str | Path) -> str:
    """Runs the command line in this process and returns what it prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def exported(trained: Trained) -> Path:
    out = trained.folder.parent / "exported"
    strop("export", trained.folder, out)
    return out


def test_plain_transformers_gives_the_logprobs_of_the_policy(trained: Trained, exported: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(exported)
    token_ids = torch.arange(8, 40)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(token_ids[None]).logits[0, :-1], -1)
    expected = logprobs.gather(1, token_ids[1:, None])[:, 0]
    with open_session(trained.config) as session:
        untrained = torch.from_numpy(session.run.policy.score_tokens([token_ids.numpy()])[0])
        session.run.policy.load(newest_checkpoint(trained.folder) / "engine")
        actual = torch.from_numpy(session.run.policy.score_tokens([token_ids.numpy()])[0])
    assert relative_error(actual, expected) < 1e-5
    assert relative_error(untrained, expected) > 1e-2


def test_the_exported_tokenizer_renders_chats_as_before(trained: Trained, exported: Path) -> None:
    chat = [{"role": "user", "content": "What is two plus two?"}]
    texts = [
        AutoTokenizer.from_pretrained(folder).apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        for folder in (exported, trained.config.model.path)
    ]
    assert texts[0] == texts[1]


def test_an_earlier_step_is_exported_by_its_number(trained: Trained, exported: Path, tmp_path: Path) -> None:
    strop("export", trained.folder, tmp_path / "first", "--step", "1")
    first, last = (AutoModelForCausalLM.from_pretrained(folder) for folder in (tmp_path / "first", exported))
    assert not torch.equal(first.model.layers[0].mlp.up_proj.weight, last.model.layers[0].mlp.up_proj.weight)


def test_generating_from_the_export_is_repeatable_and_the_command_line_says_the_same(exported: Path) -> None:
    texts = generate(ModelConfig(path=str(exported)), ["What is 1"], sampling=SamplingParams(8), samples=2)
    output = strop("generate", exported, "What is 1", "--samples", "2", "--max-new-tokens", "8")
    assert len(texts[0]) == 2
    assert output.count("> What is 1") == 2
    assert all(text.strip() in output for text in texts[0])


def test_evaluating_a_checkpoint_repeats_what_the_run_measured(trained: Trained) -> None:
    output = strop("eval", trained.run_file, "--checkpoint", newest_checkpoint(trained.folder))
    measured = json.loads((trained.folder / "evaluations.json").read_text())["2"]["sampled"]["scores"]["sampled"]
    assert f"{measured[0]:.1%}" in output


def test_samples_can_be_browsed_by_step_and_prompt(trained: Trained) -> None:
    output = strop("samples", trained.folder, "--step", "2")
    assert "What is" in output
    assert "reward" in output.lower()


@pytest.mark.slow
def test_the_whole_road_in_processes_of_their_own(tmp_path: Path) -> None:
    run_file = write_run_file(tiny_run(tmp_path, run={"steps": 1}), tmp_path / "run.toml")
    run_folder = tmp_path / "runs" / "run"
    for arguments in (
        ("train", str(run_file)),
        ("export", str(run_folder), str(tmp_path / "model")),
        ("generate", str(tmp_path / "model"), "What is 1", "--max-new-tokens", "4"),
        ("samples", str(run_folder)),
    ):
        result = run_strop(*arguments)
        assert result.returncode == 0, result.stderr
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "model") is not None
