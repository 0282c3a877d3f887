"""A model that is sharded before its weights are read is the one that is read first; no process held all of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from strop.config.model import LoraConfig, ModelConfig
from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.models.late_load import build_empty, fill
from strop.models.load import load_policy
from strop.models.lora import attach_adapters
from strop.protocols import AlgorithmNeeds
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.policy import PolicyModule
from strop.training.fsdp2.sharding import shard
from support.ranks import spawn_ranks, whole
from support.tiny import tiny_folder, tiny_groups
from support.tokenizer import tiny_tokenizer
from support.training import ratio_loss, tiny_plan

LORA = LoraConfig(rank=4, alpha=8.0)
CASES = {
    "llama": {},
    "qwen2": {},
    "gemma3": {},
    "qwen3_moe": {},
    "qwen3_next": {},
    "llama with adapters": {"lora": LORA},
    "qwen3_moe with adapters": {"lora": LORA},
    "qwen3 in bfloat16": {"dtype": "bfloat16"},
    "qwen2 in bfloat16 with adapters": {"dtype": "bfloat16", "lora": LORA},
}
SEED = 7
COUNTS = (1, 2, 4)


def section_of(case: str, folder: Path) -> ModelConfig:
    return ModelConfig(path=str(folder / f"{case.split()[0]}-0"), **{"dtype": "float32", **CASES[case]})


def read_late(section: ModelConfig, shard_size: int | None = None) -> Fsdp2Engine:
    hf_model = build_empty(section)
    assert all(weight.is_meta for weight in hf_model.parameters())
    return engine_of(hf_model, section, partial(fill, hf_model, section, seed=SEED), shard_size)


def read_first(section: ModelConfig) -> Fsdp2Engine:
    hf_model = load_policy(section).hf_model
    if section.lora is not None:
        attach_adapters(hf_model, section.lora, SEED)
    return engine_of(hf_model, section, None, None)


def engine_of(hf_model, section, load_weights, shard_size) -> Fsdp2Engine:  # noqa: ANN001
    training = TrainingConfig(learning_rate=1e-2, shard_size=shard_size)
    return Fsdp2Engine(
        hf_model, training, temperature=1.0, device=CpuDevice(), needs=AlgorithmNeeds(), load_weights=load_weights
    )


def tensors(engine: Fsdp2Engine) -> dict[str, Tensor]:
    """Parameters, tied ones under each of their names, and buffers, those too that no checkpoint holds."""
    model = engine.causal_lm
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: whole(tensor) for name, tensor in named}


def observed(engine: Fsdp2Engine) -> dict[str, dict[str, Tensor]]:
    """What was read, and what one update makes of it."""
    plan = tiny_plan(tiny_groups(), 25, share_prefix=engine.shares_prefixes)
    before = tensors(engine)
    trained = {"trained": torch.tensor([weight.requires_grad for weight in engine.causal_lm.parameters()])}
    rank = dist.get_rank() if dist.is_initialized() else 0
    engine.forward_backward(plan.of_rank(rank), ratio_loss)
    engine.optimizer_step()
    return {"read": before, "updated": tensors(engine), "trained": trained}


def observe_all(rank: int, folder: Path, file: Path) -> None:
    found = {case: observed(read_late(section_of(case, folder))) for case in CASES}
    if dist.is_initialized() and dist.get_world_size() == 4:
        found["llama with adapters"] = observed(read_late(section_of("llama with adapters", folder), shard_size=2))
    if rank == 0:
        torch.save(found, file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for family in sorted({case.split()[0] for case in CASES}):
        tiny_folder(folder, family)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[int, dict]:
    for count in COUNTS:
        file = folder / f"found-{count}.pt"
        if count == 1:
            observe_all(0, folder, file)
        else:
            spawn_ranks(observe_all, count, folder, folder, file)
    return {count: torch.load(folder / f"found-{count}.pt") for count in COUNTS}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", COUNTS)
def test_what_is_read_late_is_what_is_read_first(folder: Path, found: dict[int, dict], count: int, case: str) -> None:
    expected, actual = observed(read_first(section_of(case, folder))), found[count][case]
    assert actual["read"].keys() == expected["read"].keys()
    assert any("inv_freq" in name for name in expected["read"])
    for name, value in expected["read"].items():
        assert actual["read"][name].dtype == value.dtype, name
        torch.testing.assert_close(actual["read"][name], value, rtol=0, atol=0, msg=name)
    torch.testing.assert_close(actual["trained"], expected["trained"])
    tolerance = 0.05 if "bfloat16" in case else 1e-3
    for name, value in expected["updated"].items():
        error = float(
            (actual["updated"][name].double() - value.double()).norm() / value.double().norm().clamp_min(1e-9)
        )
        assert error < tolerance, name


# ------------------------------------------------------------------------------------------- memory

NUM_RANKS = 4


def anonymous_bytes() -> int:
    """Memory of this process that is no map of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


@contextmanager
def watched_peak() -> Iterator[list[int]]:
    """Leaves behind how far anonymous memory rose above what it was, looked at every millisecond."""
    start, peaks, is_over = anonymous_bytes(), [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.001):
            peaks[0] = max(peaks[0], anonymous_bytes() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        is_over.set()
        watcher.join()


def sharded(hf_model: PreTrainedModel) -> PolicyModule:
    module = PolicyModule(hf_model, chunk_tokens=64, shares_prefixes=True)
    shard(module, hf_model, CpuDevice())
    return module


def measure(rank: int, section: ModelConfig, folder: Path) -> None:
    """Loads in bfloat16 what is stored in float32, so that nothing can stay a map of the file."""
    kept = []
    with watched_peak() as late:
        hf_model = build_empty(section)
        kept.append(sharded(hf_model))
        fill(hf_model, section, torch.device("cpu"))
    with watched_peak() as first:
        kept.append(sharded(load_policy(section).hf_model))
    torch.save((late[0], first[0]), folder / f"peaks-{rank}.pt")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_no_process_ever_holds_a_whole_copy(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=8,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "model", max_shard_size="40MB")
    tokenizer.save_pretrained(tmp_path / "model")
    num_bytes = 2 * sum(weight.numel() for weight in model.parameters())
    assert num_bytes > 100e6
    spawn_ranks(measure, NUM_RANKS, tmp_path, ModelConfig(path=str(tmp_path / "model"), dtype="bfloat16"), tmp_path)
    for rank in range(NUM_RANKS):
        late, first = torch.load(tmp_path / f"peaks-{rank}.pt")
        assert late < 0.5 * num_bytes, (rank, late, num_bytes)
        assert first > 0.95 * num_bytes, (rank, first, num_bytes)
