"""What a run is assembled from, wherever it lives: in this process, or in others."""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from strop.checkpoint.manifest import ModelIdentity
from strop.cluster.local import LocalCluster
from strop.cluster.ray.cluster import RayCluster
from strop.config.root import Config
from strop.devices import build_device
from strop.distillation.teachers import Teachers
from strop.protocols import Algorithm, Critic, Device, PlanScorer, WeightTransfer
from strop.rollout.native.engine import NativeEngine
from strop.trainers.inputs import Inputs
from strop.trainers.learner import build_learner, load_checked
from strop.trainers.remote.policy import RemotePolicy
from strop.trainers.samplers import NativeSamplers, Samplers
from strop.training.costs import ComputeCosts
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.transfer import InProcessTransfer

Policy = Fsdp2Engine | RemotePolicy
"""Implements `protocols.PolicyUpdater`, here or over several ranks."""


@dataclass(frozen=True)
class Parts:
    """The models of a run and what joins them."""

    cluster: LocalCluster | RayCluster
    device: Device
    policy: Policy
    reference: PlanScorer | None
    critic: Critic | None
    teachers: Teachers | None
    samplers: Samplers
    transfer: WeightTransfer
    identity: ModelIdentity
    shares_prefixes: bool
    num_ranks: int
    costs: ComputeCosts


def local_parts(config: Config, inputs: Inputs, algorithm: Algorithm) -> Parts:
    """Loads everything into this process."""
    device = build_device(config.run.device)
    device.set_threads(config.run.threads)
    hf_model = load_checked(config)
    engines = [_rollout_engine(config, inputs, hf_model, device) for _ in range(config.rollout.replicas)]
    learner = build_learner(config, hf_model, algorithm, device)
    policy = learner.policy
    return Parts(
        cluster=LocalCluster(),
        device=device,
        policy=policy,
        reference=learner.reference,
        critic=learner.critic,
        teachers=learner.teachers,
        samplers=NativeSamplers(engines),
        transfer=InProcessTransfer(policy.export_weights, rollout_dtype(config)),
        identity=ModelIdentity.of(policy.export_weights()),
        shares_prefixes=policy.shares_prefixes,
        num_ranks=1,
        costs=ComputeCosts(),
    )


def rollout_dtype(config: Config) -> torch.dtype:
    """The type of the samplers' weights."""
    dtype: torch.dtype = getattr(torch, config.model.rollout_dtype or config.model.dtype)
    return dtype


def _rollout_engine(config: Config, inputs: Inputs, hf_model: PreTrainedModel, device: Device) -> NativeEngine:
    """Gives the sampler a copy of the model of its own: it holds what was published, never what is being trained."""
    sampler_model = copy.deepcopy(hf_model)
    nn.Module.to(sampler_model, device=device.torch_device, dtype=rollout_dtype(config))
    match config.rollout.type:
        case "native":
            return NativeEngine(sampler_model, config.rollout, inputs.text_of_tokens, max_length=inputs.max_length)
