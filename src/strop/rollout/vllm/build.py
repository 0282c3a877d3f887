"""Starts vLLM for a model folder and puts the engine in front of it."""

import logging
import os
from pathlib import Path
from typing import Any

from strop.config.rollout import RolloutConfig
from strop.config.rollout_vllm import VllmConfig
from strop.errors import ModelError
from strop.rollout.native.stops import Decode
from strop.rollout.vllm.engine import VllmEngine
from strop.rollout.vllm.host import VllmHost
from strop.rollout.vllm.settings import check_engine_args, engine_args, environment, set_environment
from strop.rollout.vllm.versions import require_vllm

CPU_HEAD_SIZES_HINT = "vLLM's attention on a CPU has kernels for some head sizes only; rollout.type = 'native' has all."


def build_vllm_engine(
    folder: Path,
    rollout: RolloutConfig,
    section: VllmConfig,
    decode: Decode | None = None,
    *,
    dtype: str,
    max_length: int,
    num_threads: int,
    trust_remote_code: bool = False,
) -> VllmEngine:
    """Returns an engine that serves the weights of `folder` as version 0.

    Args:
        folder: a Hugging Face model folder; `strop.models.locate` finds it.
        rollout: the run's section.
        section: what only vLLM takes.
        decode: gives the text of token ids; needed for stop strings only.
        dtype: float32 or bfloat16, of the sampler's weights.
        max_length: bound of prompt plus completion.
        num_threads: of vLLM's worker on a CPU.
        trust_remote_code: runs Python code that the model folder brings along.

    Raises ModelError where vLLM is missing, of an untested version, or cannot run the model, and ConfigError for an
    argument that it does not have; both before any weight is loaded.
    """
    require_vllm()
    with set_environment(environment({}, num_threads)):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform

        logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
        on_cpu = current_platform.is_cpu()
        check_engine_args(section.engine_args, AsyncEngineArgs.__dataclass_fields__)
        args = engine_args(str(folder), rollout, section, dtype=dtype, max_length=max_length, on_cpu=on_cpu)
        args["trust_remote_code"] = trust_remote_code
        config = _model_config(AsyncEngineArgs(**args))
    if on_cpu:
        _require_head_size(config.get_head_size())
    can_sleep = bool(args.get("enable_sleep_mode")) and current_platform.is_sleep_mode_available()
    host = VllmHost(args, environment(args, num_threads))
    return VllmEngine(host, config.get_vocab_size(), max_length, decode, can_sleep=can_sleep)


def _model_config(args: Any) -> Any:
    """vLLM's own reading of the model folder, without weights."""
    try:
        return args.create_model_config()
    except (ValueError, OSError) as error:
        raise ModelError(f"vLLM cannot run the model: {error}", "Use rollout.type = 'native'.") from error


def _require_head_size(size: int) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    known = CPUAttentionBackend.get_supported_head_sizes()
    if size not in known:
        raise ModelError(f"vLLM on a CPU needs a head size of {known}, the model has {size}", CPU_HEAD_SIZES_HINT)
