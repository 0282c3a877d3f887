"""A policy loads whole with its tokenizer and limits, or is refused in seconds with the remedy."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from strop.config.model import ModelConfig
from strop.errors import ModelError
from strop.models.attention.interface import ATTENTION_NAME
from strop.models.load import load_model_config, load_policy, load_tokenizer, max_length
from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_folder, tiny_model
from support.tokenizer import BOS_ID, EOS_ID, IM_END_ID, PAD_ID

TOKEN_IDS = torch.arange(20)[None] * 7 + 10
WEIGHTS = "model.safetensors"


def _section(folder: Path, **options: Any) -> ModelConfig:
    return ModelConfig(path=str(folder), **options)


def _edit_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path, "llama")


# ------------------------------------------------------------------------------------------ what loads


@pytest.mark.parametrize("family", FAMILIES + HYBRID_FAMILIES)
def test_each_family_loads_with_exactly_its_weights(tmp_path: Path, family: str) -> None:
    loaded = load_policy(_section(tiny_folder(tmp_path, family)))
    expected = tiny_model(family)
    for (name, weight), other in zip(loaded.hf_model.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(weight, other), name
    assert not loaded.hf_model.training


def test_facts_about_tokens_and_length_come_with_the_model(folder: Path) -> None:
    loaded = load_policy(_section(folder), user_stop_ids=[9])
    assert (loaded.bos_id, loaded.eos_id, loaded.pad_id) == (BOS_ID, EOS_ID, PAD_ID)
    assert loaded.stops.token_ids == {EOS_ID, IM_END_ID, 9}
    assert loaded.max_length == 512
    assert loaded.folder == folder
    assert loaded.hf_model.config._attn_implementation == ATTENTION_NAME


@pytest.mark.parametrize(("name", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_dtype_is_the_one_asked_for(folder: Path, name: Any, dtype: torch.dtype) -> None:
    loaded = load_policy(_section(folder, dtype=name))
    assert {weight.dtype for weight in loaded.hf_model.parameters()} == {dtype}


def test_a_sharded_folder_loads(folder: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "shards", max_shard_size="50KB")
    (tmp_path / "shards" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert load_policy(_section(tmp_path / "shards")).max_length == 512


def test_tokenizer_and_config_load_where_the_weights_are_missing(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    assert len(load_tokenizer(_section(folder))) == 320
    assert load_model_config(_section(folder)).model_type == "llama"


def test_a_chat_template_file_replaces_the_tokenizers(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "plain.jinja"
    file.write_text("{% for message in messages %}Q: {{ message['content'] }}{% endfor %}")
    tokenizer = load_tokenizer(_section(folder, chat_template=file))
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "Q: hi"


def test_max_length_is_lowered_by_the_config_never_raised(folder: Path) -> None:
    config = load_model_config(_section(folder))
    assert max_length(_section(folder, max_length=100), config) == 100
    with pytest.raises(ModelError, match="at most the model's own 512, got 513"):
        max_length(_section(folder, max_length=513), config)


# ------------------------------------------------------------------------------------------ broken checkpoints


def _truncated(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size - 100)


def _header_only(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, 5)


def _no_header(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((10).to_bytes(8, "little") + b"not json at all")


def _git_lfs_pointer(folder: Path) -> None:
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")


def _no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def _without_a_tensor(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _with_a_foreign_tensor(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS) | {"model.layers.7.extra.weight": torch.zeros(3)}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _with_another_shape(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["model.norm.weight"] = torch.zeros(31)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _config_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "llama"')


def _config_is_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def _no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _generation_config_is_no_json(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{")


def _tokenizer_is_no_json(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


def _no_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def _fewer_embeddings_than_tokens(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:300].clone()
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    _edit_config(folder, vocab_size=300)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncated, r"whole safetensors file, got \d+ bytes where its header promises \d+"),
        (_header_only, "5 bytes, too few for its header"),
        (_no_header, "a header that is not JSON"),
        (_git_lfs_pointer, "whole safetensors file"),
        (_no_weights, "must hold weights"),
        (_without_a_tensor, r"missing keys: model\.layers\.1\.mlp\.up_proj\.weight"),
        (_with_a_foreign_tensor, r"unexpected keys: model\.layers\.7\.extra\.weight"),
        (_with_another_shape, r"mismatched keys: .*model\.norm\.weight.*31.*32"),
        (_config_is_no_json, r"config\.json must be JSON"),
        (_config_is_a_list, "must hold a JSON object, got list"),
        (_no_config, r"must have a config\.json"),
        (_generation_config_is_no_json, "generation config of .* cannot be read"),
        (_tokenizer_is_no_json, "tokenizer of .* cannot be read"),
        (_no_tokenizer, "tokenizer of .* cannot be read"),
        (_fewer_embeddings_than_tokens, r"embeddings \(300\), got 320"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_folder_is_refused_by_name(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    start = time.monotonic()
    with pytest.raises(ModelError, match=message):
        load_policy(_section(folder))
    assert time.monotonic() - start < 5


def test_a_missing_shard_is_named(tmp_path: Path, folder: Path) -> None:
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "shards", max_shard_size="50KB")
    (tmp_path / "shards" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    shard = sorted((tmp_path / "shards").glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ModelError, match=shard.name):
        load_policy(_section(tmp_path / "shards"))


# ------------------------------------------------------------------------------------------ kinds


def test_code_in_the_folder_is_refused_unless_asked_for(folder: Path) -> None:
    _edit_config(folder, model_type="mine", auto_map={"AutoConfig": "mine.MyConfig"})
    (folder / "mine.py").write_text("raise SystemExit('the code ran')")
    with pytest.raises(ModelError, match=r"set model\.trust_remote_code = true"):
        load_policy(_section(folder))


def test_code_in_the_folder_runs_when_asked_for(folder: Path) -> None:
    _edit_config(folder, model_type="mine", auto_map={"AutoConfig": "mine.MyConfig"})
    (folder / "mine.py").write_text(
        "from transformers import LlamaConfig\n\n\nclass MyConfig(LlamaConfig):\n    model_type = 'mine'\n"
    )
    assert load_model_config(_section(folder, trust_remote_code=True)).model_type == "mine"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "no_such_type"}, r"'no_such_type', which transformers [\d.]+ does not know"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "decoder-only"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised by 'fp8'"),
        ({"model_type": "vit"}, "causal language model"),
    ],
)
def test_a_kind_that_cannot_be_trained_is_refused(folder: Path, values: dict[str, Any], message: str) -> None:
    _edit_config(folder, **values)
    with pytest.raises(ModelError, match=message):
        load_policy(_section(folder))


# ------------------------------------------------------------------------------------------ naming a model


@pytest.mark.parametrize("path", ["./nope", "../nope/nope", "/nope/nope/nope", "~/no/such/folder", "a/b/c", "nope/"])
def test_a_local_path_that_does_not_exist_is_said_at_once(path: str) -> None:
    start = time.monotonic()
    with pytest.raises(ModelError, match="must be an existing folder or a hub id"):
        load_tokenizer(ModelConfig(path=path))
    assert time.monotonic() - start < 1


def test_a_typo_beside_an_existing_folder_names_the_nearest(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    typo = f"{tmp_path.name}/lama-0"
    with pytest.raises(ModelError, match=f"Did you mean {tmp_path.name}/{folder.name}"):
        load_tokenizer(ModelConfig(path=typo))


def test_a_hub_model_that_cannot_be_fetched_says_that_it_is_no_folder_either() -> None:
    start = time.monotonic()
    with pytest.raises(ModelError, match="there is no local folder 'nobody/nothing'"):
        load_tokenizer(ModelConfig(path="nobody/nothing"))
    assert time.monotonic() - start < 5


def test_a_revision_of_a_local_folder_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.revision must be left out"):
        load_tokenizer(_section(folder, revision="main"))


def test_an_adapter_folder_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds an adapter"):
        load_tokenizer(_section(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"), [("{% for %}", "chat template must render"), (None, "existing Jinja file")]
)
def test_a_chat_template_that_cannot_be_used_is_refused(
    folder: Path, tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "template.jinja"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ModelError, match=message):
        load_tokenizer(_section(folder, chat_template=file))
