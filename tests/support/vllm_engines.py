"""Engines on vLLM for tests: each tiny model is started once a process, which takes half a minute."""

import asyncio
import importlib.util
import tempfile
from functools import cache
from pathlib import Path

import pytest

from strop.config.rollout import RolloutConfig
from strop.config.rollout_vllm import VllmConfig
from strop.models.weights import weight_chunks
from strop.rollout.vllm.engine import EngineState, VllmEngine
from support.tiny import MAX_LENGTH, tiny_folder, tiny_model
from support.tokenizer import VOCAB_SIZE, tiny_tokenizer

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here: make setup-vllm, then make test-vllm"
)
CACHE_GIB = 0.05


def vllm_engine(family: str) -> VllmEngine:
    """Returns an engine that holds the weights of seed 0 as version 0 and serves."""
    engine = running_engine(family)
    if engine.state is not EngineState.SERVING:
        asyncio.run(engine.wake())
    asyncio.run(engine.receive_weights(weight_chunks(tiny_model(family)), 0))
    return engine


@cache
def running_engine(family: str) -> VllmEngine:
    """Starts an engine; it ends with the process."""
    from strop.rollout.vllm.build import build_vllm_engine

    return build_vllm_engine(
        tiny_folder(_folder(), family),
        RolloutConfig(max_running=16),
        VllmConfig(cache_gib=CACHE_GIB),
        tiny_tokenizer().decode,
        dtype="float32",
        max_length=MAX_LENGTH,
        num_threads=1,
    )


@cache
def breakable_engine(family: str) -> VllmEngine:
    """Starts an engine whose worker can be told to receive weights wrongly."""
    from strop.rollout.vllm.host import VllmHost
    from strop.rollout.vllm.settings import engine_args, environment

    folder = str(tiny_folder(_folder(), family))
    section = VllmConfig(cache_gib=CACHE_GIB)
    args = engine_args(folder, RolloutConfig(), section, dtype="float32", max_length=MAX_LENGTH, on_cpu=True)
    args["worker_extension_cls"] = "support.vllm_workers.BreakableReceiver"
    return VllmEngine(VllmHost(args, environment(args, 1)), VOCAB_SIZE, MAX_LENGTH)


def break_worker(engine: VllmEngine, fault: str | None) -> None:
    """Makes the worker receive weights wrongly from now on; None mends it."""
    asyncio.run(engine._host.call(engine._host.on_workers("strop_break", fault)))


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="strop-vllm-"))
