"""With adapters only they are trained, and what leaves is the merged weight."""

from pathlib import Path

import pytest
import torch

from strop.config.model import LoraConfig
from strop.models.lora import attach_adapters
from strop.training.fsdp2.engine import Fsdp2Engine
from support.tiny import tiny_groups, tiny_model
from support.training import parameters, run_update, tiny_engine, tiny_plan

pytest.importorskip("peft")


def adapter_engine() -> Fsdp2Engine:
    model = tiny_model("llama")
    attach_adapters(model, LoraConfig(rank=2, alpha=4.0), seed=0)
    return tiny_engine(model=model)


def test_only_adapters_move() -> None:
    engine = adapter_engine()
    before = parameters(engine)
    assert run_update(engine, tiny_plan(tiny_groups(), 20)).applied
    changed = {name for name, value in parameters(engine).items() if not torch.equal(value, before[name])}
    assert changed
    assert all(".lora_" in name for name in changed)


def test_the_export_scores_as_the_adapted_model_and_changes_nothing() -> None:
    engine = adapter_engine()
    for _ in range(2):
        run_update(engine, tiny_plan(tiny_groups(), 20))
    before = parameters(engine)
    sequence = tiny_groups()[0].samples[0].rows[0].token_ids
    merged = tiny_model("llama", seed=5)
    merged.load_state_dict({chunk.name: chunk.tensor for chunk in engine.export_weights()}, strict=False)
    (expected,), (scored,) = tiny_engine(model=merged).score_tokens([sequence]), engine.score_tokens([sequence])
    (base,) = tiny_engine().score_tokens([sequence])
    assert abs(scored - expected).max() < 1e-5
    assert abs(scored - base).max() > 1e-3
    assert all(torch.equal(value, before[name]) for name, value in parameters(engine).items())


def test_a_checkpoint_holds_the_adapters_only_and_restores_them(tmp_path: Path) -> None:
    engine = adapter_engine()
    run_update(engine, tiny_plan(tiny_groups(), 20))
    engine.save(tmp_path)
    assert (tmp_path / "parameters.safetensors").stat().st_size < 100_000
    restored = adapter_engine()
    restored.load(tmp_path)
    expected, actual = parameters(engine), parameters(restored)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
