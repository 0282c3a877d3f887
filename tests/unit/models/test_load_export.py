"""An exported folder loads in plain transformers and gives the same logits."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from strop.errors import ModelError
from strop.models.checkpoint_names import forget_source_names
from strop.models.export import export_folder
from strop.models.weights import weight_chunks
from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_folder, tiny_model
from support.tokenizer import tiny_tokenizer

TOKEN_IDS = torch.arange(20)[None] * 7 + 10


def _export(model: PreTrainedModel, folder: Path, max_shard_bytes: int = 10**9) -> Path:
    return export_folder(folder, weight_chunks(model), model, tiny_tokenizer(), max_shard_bytes)


def _loaded(folder: Path) -> PreTrainedModel:
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    assert not any(report.values()), report
    return model


def _assert_same_logits(loaded: PreTrainedModel, expected: PreTrainedModel) -> None:
    with torch.no_grad():
        torch.testing.assert_close(loaded(TOKEN_IDS).logits, expected(TOKEN_IDS).logits, rtol=0, atol=0)


@pytest.mark.parametrize("family", FAMILIES + HYBRID_FAMILIES)
def test_each_family_gives_the_same_logits_after_export(tmp_path: Path, family: str) -> None:
    model = tiny_model(family, attn="eager")
    _assert_same_logits(_loaded(_export(model, tmp_path / "out")), model)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_shards_are_indexed_and_together_give_the_model(tmp_path: Path, family: str) -> None:
    model = tiny_model(family, attn="eager")
    folder = _export(model, tmp_path / "out", max_shard_bytes=20_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = {file.name for file in folder.glob("*.safetensors")}
    assert set(index["weight_map"].values()) == files
    assert len(files) > 3
    _assert_same_logits(_loaded(folder), model)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_are_those_that_transformers_itself_saves(tmp_path: Path, family: str) -> None:
    theirs = tiny_folder(tmp_path, family)
    ours = _export(AutoModelForCausalLM.from_pretrained(theirs), tmp_path / "ours")
    with safe_open(theirs / "model.safetensors", "pt") as left, safe_open(ours / "model.safetensors", "pt") as right:
        assert sorted(left.keys()) == sorted(right.keys())


def test_tokenizer_template_stop_ids_and_dtype_survive(tmp_path: Path) -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    model.generation_config.eos_token_id = [2, 4]
    folder = _export(model, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == tiny_tokenizer().chat_template
    assert tokenizer.encode("What is 12?") == tiny_tokenizer().encode("What is 12?")
    assert GenerationConfig.from_pretrained(folder).eos_token_id == [2, 4]
    assert AutoModelForCausalLM.from_pretrained(folder).dtype is torch.bfloat16
    assert "strop" not in (folder / "config.json").read_text()


def test_an_export_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(ModelError, match="new or empty"):
        _export(tiny_model("llama"), tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    model = tiny_model("llama")

    def failing() -> object:
        yield from list(weight_chunks(model))[:3]
        raise RuntimeError("the stream broke")

    with pytest.raises(RuntimeError, match="the stream broke"):
        export_folder(tmp_path / "out", failing(), model, tiny_tokenizer(), max_shard_bytes=1)
    assert list(tmp_path.iterdir()) == []


def test_a_model_read_in_a_foreign_layout_exports_as_its_family_publishes(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    tiny_model("qwen3_moe", attn="eager").save_pretrained(packed, save_original_format=False)
    model = AutoModelForCausalLM.from_pretrained(packed)
    forget_source_names(model)
    with safe_open(_export(model, tmp_path / "out") / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert "model.layers.0.mlp.experts.3.gate_proj.weight" in names
    assert not any("gate_up_proj" in name for name in names)
