"""Builds a rollout engine, in this process or in a sampler's own."""

import copy
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from strop.config.root import Config
from strop.models.locate import locate
from strop.protocols import Device
from strop.rollout.native.engine import NativeEngine
from strop.rollout.native.stops import Decode
from strop.rollout.vllm.build import build_vllm_engine
from strop.rollout.vllm.engine import VllmEngine
from strop.trainers.learner import load_checked

Engine = NativeEngine | VllmEngine


def rollout_dtype(config: Config) -> torch.dtype:
    """The type of the samplers' weights."""
    dtype: torch.dtype = getattr(torch, config.model.rollout_dtype or config.model.dtype)
    return dtype


def build_engine(
    config: Config,
    decode: Decode,
    max_length: int,
    device: Device,
    *,
    num_threads: int,
    policy: PreTrainedModel | None = None,
) -> Engine:
    """Returns an engine with weights of its own: it holds what was published, never what is being trained.

    Args:
        config: of the run.
        decode: the text of token ids.
        max_length: most tokens of prompt and completion.
        device: of a native engine.
        num_threads: of vLLM's own process.
        policy: the policy's model where it is here, to be copied; None loads the model.
    """
    match config.rollout.type:
        case "native":
            hf_model = load_checked(config) if policy is None else copy.deepcopy(policy)
            nn.Module.to(hf_model, device=device.torch_device, dtype=rollout_dtype(config))
            return NativeEngine(hf_model, config.rollout, decode, max_length=max_length)
        case "vllm":
            return build_vllm_engine(
                Path(locate(config.model)),
                config.rollout,
                config.rollout.vllm,
                decode,
                dtype=config.model.rollout_dtype or config.model.dtype,
                max_length=max_length,
                num_threads=num_threads,
                trust_remote_code=config.model.trust_remote_code,
            )


def close_engine(engine: Engine) -> None:
    """Ends what an engine runs beside this process."""
    if isinstance(engine, VllmEngine):
        engine.close()
