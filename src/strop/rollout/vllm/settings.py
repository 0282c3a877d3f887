"""The run's settings as arguments of vLLM's engine, and the environment that its processes start in."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from strop.config.rollout import RolloutConfig
from strop.config.rollout_vllm import VllmConfig
from strop.errors import ConfigError, nearest_hint

GIB: Final = 1 << 30
CPU_CACHE_GIB: Final = 1.0
"""The KV cache on a CPU where the run file does not say: vLLM's default there is nearly all of the memory."""
CPU_BLOCK_SIZE: Final = 32
"""Tokens in a block of the KV cache, and so the grain of shared prefixes; the least that vLLM takes on a CPU."""

OWN_ARGS: Final = {
    "model": "model.path",
    "tokenizer": "model.path",
    "dtype": "model.rollout_dtype",
    "max_model_len": "model.max_length",
    "max_num_seqs": "rollout.max_running",
    "trust_remote_code": "model.trust_remote_code",
    "kv_cache_memory_bytes": "rollout.vllm.cache_gib",
    "gpu_memory_utilization": "rollout.vllm.gpu_memory_utilization",
}
"""Arguments that another key says."""
FIXED_ARGS: Final = {
    "logprobs_mode": "log-probs must be those of the distribution that is sampled from",
    "generation_config": "what ends a sample is said by each request",
    "skip_tokenizer_init": "token ids go in and out",
    "seed": "each sample has a seed of its own",
    "worker_extension_cls": "it receives the weights",
    "enable_prefix_caching": "a prompt is computed once for its group",
    "quantization": "received weights could not be accounted for by name",
    "tensor_parallel_size": "received weights are accounted for whole: use more replicas",
    "pipeline_parallel_size": "received weights are accounted for whole: use more replicas",
    "data_parallel_size": "each replica is an engine of its own",
    "speculative_config": "a draft model's weights would stay as they are",
    "enable_lora": "adapters are published merged",
}
"""Arguments that must be as they are, and why."""


def check_engine_args(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises ConfigError for an argument that vLLM does not have, or that is not the user's to set."""
    names = set(known)
    for name in given:
        key = f"rollout.vllm.engine_args.{name}"
        if name in OWN_ARGS:
            raise ConfigError(f"{key} must be left out: {OWN_ARGS[name]} says it", f"Set {OWN_ARGS[name]}.")
        if name in FIXED_ARGS:
            raise ConfigError(f"{key} must be left out: {FIXED_ARGS[name]}", "Take it out.")
        if name not in names:
            raise ConfigError(f"{key} is no argument of vLLM's engine{nearest_hint(name, names)}", "Correct its name.")


def engine_args(
    folder: str, rollout: RolloutConfig, section: VllmConfig, *, dtype: str, max_length: int, on_cpu: bool
) -> dict[str, Any]:
    """Returns the keyword arguments of `AsyncEngineArgs`.

    vLLM wants room for a token behind every sequence, also one that is only scored: hence one more than `max_length`.
    """
    args: dict[str, Any] = {
        "model": folder,
        "dtype": dtype,
        "max_model_len": max_length + 1,
        "max_num_seqs": rollout.max_running,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "enable_prefix_caching": True,
        "worker_extension_cls": "strop.rollout.vllm.worker.WeightReceiver",
        "disable_log_stats": True,
    }
    cache_gib = section.cache_gib if section.cache_gib is not None or not on_cpu else CPU_CACHE_GIB
    if cache_gib is not None:
        args["kv_cache_memory_bytes"] = int(cache_gib * GIB)
    if section.gpu_memory_utilization is not None:
        args["gpu_memory_utilization"] = section.gpu_memory_utilization
    if on_cpu:
        args |= {"enforce_eager": True, "block_size": CPU_BLOCK_SIZE}
    return args | section.engine_args


def environment(args: Mapping[str, Any], num_threads: int) -> dict[str, str]:
    """Returns the variables that vLLM's processes start with; what the user has set stays as it is.

    Threads are not bound to cores: trainer and sampler take turns on all of them. The worker lives in the engine's own
    process, as on a GPU: vLLM's default on a CPU is one process more, for whose answers the engine spins on a core that
    the worker's threads need. An eager engine compiles nothing,
    not even the small functions of vLLM's sampler, whose compilation takes longer than a short run.
    """
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(num_threads),
    }
    if args.get("enforce_eager"):
        variables["TORCHDYNAMO_DISABLE"] = "1"
    return {name: value for name, value in variables.items() if name == "OMP_NUM_THREADS" or name not in os.environ}


@contextmanager
def set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables while vLLM starts; afterwards the process's environment is what it was, whatever vLLM changed."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
