"""Sampling settings that training cannot use or the engine cannot serve."""

from collections.abc import Iterator

from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.root import Config

_UNCORRECTED = "the sampler would then draw from another distribution than the one trained, without correction"


def check_rollout(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `rollout`."""
    rollout = config.rollout
    if rollout.top_p < 1:
        yield Refusal(
            "rollout.top_p",
            f"must be 1 in training, got {rollout.top_p}: {_UNCORRECTED}",
            "Leave it out; evaluation.top_p is free.",
        )
    if rollout.top_k > 0:
        yield Refusal(
            "rollout.top_k",
            f"must be 0 (off) in training, got {rollout.top_k}: {_UNCORRECTED}",
            "Leave it out; evaluation.top_k is free.",
        )
    yield from _check_stops(config)
    if rollout.max_cache_tokens <= rollout.max_new_tokens:
        yield Refusal(
            "rollout.max_cache_tokens",
            f"must be above rollout.max_new_tokens ({rollout.max_new_tokens}), got {rollout.max_cache_tokens}: "
            "not even one sample would fit",
            "Raise it to the tokens of several samples and their prompts.",
        )
    yield from _check_packed_linears(config)
    yield from _check_engine(config)


LEAST_VLLM_PROBE = 66
"""A probe may be cut to half of its length, which must fill a block of 32 tokens and one more."""
_OF_NATIVE = ("max_cache_tokens", "packed_linears")


def _check_engine(config: Config) -> Iterator[Refusal]:
    """Each engine has keys that the other does not read."""
    rollout = config.rollout
    if rollout.type == "native":
        keys = [f"vllm.{key}" for key in type(rollout.vllm).model_fields if given(rollout.vllm, key)]
    else:
        keys = [key for key in _OF_NATIVE if given(rollout, key)]
    if rollout.type == "vllm" and config.weight_sync.probe_tokens < LEAST_VLLM_PROBE:
        yield Refusal(
            "weight_sync.probe_tokens",
            f"must be at least {LEAST_VLLM_PROBE} with vLLM, which caches whole blocks only: a shorter probe shows no "
            f"cache that was not dropped, got {config.weight_sync.probe_tokens}",
            f"Set it to {LEAST_VLLM_PROBE}.",
        )
    for key in keys:
        yield does_nothing(f"rollout.{key}", f"rollout.type is {rollout.type}", f"Leave rollout.{key} out.")


def _check_packed_linears(config: Config) -> Iterator[Refusal]:
    """Only float32 weights on a CPU have a packed layout that could be switched off."""
    if config.rollout.packed_linears:
        return
    dtype = config.model.rollout_dtype or config.model.dtype
    if config.run.device in ("cuda", "rocm", "npu"):
        yield does_nothing("rollout.packed_linears", f"run.device is {config.run.device}, no CPU", "Leave it out.")
    elif dtype != "float32":
        yield does_nothing("rollout.packed_linears", f"the sampler's weights are {dtype}, not float32", "Leave it out.")


def _check_stops(config: Config) -> Iterator[Refusal]:
    if "" in config.rollout.stop_strings:
        yield Refusal(
            "rollout.stop_strings", "must hold no empty text: it would end every sample at once", "Take it out."
        )
    negative = [token_id for token_id in config.rollout.stop_token_ids if token_id < 0]
    if negative:
        yield Refusal("rollout.stop_token_ids", f"must hold token ids of at least 0, got {negative[0]}", "Take it out.")
