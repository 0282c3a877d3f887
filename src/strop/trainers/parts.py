"""What a run is assembled from, wherever it lives: in this process, or in others."""

import os
from dataclasses import dataclass

from strop.checkpoint.manifest import ModelIdentity
from strop.cluster.local import LocalCluster
from strop.cluster.ray.cluster import RayCluster
from strop.config.root import Config
from strop.devices import build_device
from strop.distillation.teachers import Teachers
from strop.protocols import Algorithm, Critic, Device, PlanScorer, WeightTransfer
from strop.trainers.engines import build_engine, rollout_dtype
from strop.trainers.inputs import Inputs
from strop.trainers.learner import build_learner, load_checked
from strop.trainers.remote.policy import RemotePolicy
from strop.trainers.samplers import LocalSamplers, Samplers
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
    engines = [
        build_engine(
            config,
            inputs.text_of_tokens,
            inputs.max_length,
            device,
            num_threads=config.run.threads or os.cpu_count() or 1,
            policy=hf_model,
        )
        for _ in range(config.rollout.replicas)
    ]
    learner = build_learner(config, hf_model, algorithm, device)
    policy = learner.policy
    return Parts(
        cluster=LocalCluster(),
        device=device,
        policy=policy,
        reference=learner.reference,
        critic=learner.critic,
        teachers=learner.teachers,
        samplers=LocalSamplers(engines),
        transfer=InProcessTransfer(policy.export_weights, rollout_dtype(config)),
        identity=ModelIdentity.of(policy.export_weights()),
        shares_prefixes=policy.shares_prefixes,
        num_ranks=1,
        costs=ComputeCosts(),
    )
