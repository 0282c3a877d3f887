"""A model that is read after it was built refuses what a model that is read at once refuses."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from strop.config.model import LoraConfig, ModelConfig
from strop.errors import ModelError
from strop.models.late_load import build_empty, fill
from strop.models.load import load_policy
from support.tiny import tiny_folder

CPU = torch.device("cpu")


def section_of(folder: Path, **keys: object) -> ModelConfig:
    return ModelConfig(path=str(folder), dtype="float32", **keys)


def test_an_empty_model_has_no_memory_and_knows_what_stops_it(tmp_path: Path) -> None:
    section = section_of(tiny_folder(tmp_path), lora=LoraConfig(rank=2, alpha=4.0))
    hf_model = build_empty(section)
    assert all(weight.is_meta for weight in hf_model.parameters())
    assert any(weight.requires_grad for weight in hf_model.parameters())
    assert hf_model.generation_config.eos_token_id == load_policy(section).hf_model.generation_config.eos_token_id


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    section = section_of(tiny_folder(tmp_path))
    file = Path(section.path) / "model.safetensors"
    weights = load_file(file)
    removed = weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"missing keys: model\.layers\.1\.mlp\.up_proj\.weight"):
        fill(build_empty(section), section, CPU)
    weights["model.layers.1.mlp.up_proj.weight"] = removed[:-1].contiguous()
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"mismatched keys: .*up_proj"):
        fill(build_empty(section), section, CPU)


def test_weights_that_cannot_be_read_in_parts_are_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    section = section_of(folder)
    hf_model = build_empty(section)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"must be in safetensors files, got pytorch_model\.bin"):
        fill(hf_model, section, CPU)
