"""The sampler of a judge that runs in this process: the engine of the rollout, with a model of its own."""

import torch
from torch import nn

from strop.config.rollout import RolloutConfig
from strop.devices import build_device
from strop.models.attention.self_check import check_packed_attention
from strop.models.load import LoadedModel
from strop.protocols import Sampler
from strop.rollout.native.engine import NativeEngine
from strop.tasks.model_host import ModelHost


def build_model_host(device: str) -> ModelHost:
    """The host of a run's reward models and judges on the device that `run.device` names, once weights are loaded."""
    return ModelHost(lambda: build_device(device).torch_device, _sampler)


def _sampler(loaded: LoadedModel, device: torch.device) -> Sampler:
    check_packed_attention(loaded.hf_model)
    nn.Module.to(loaded.hf_model, device=device)
    return NativeEngine(loaded.hf_model, RolloutConfig(), max_length=loaded.max_length)
