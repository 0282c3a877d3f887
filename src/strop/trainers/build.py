"""Wires a run together: the only file that sees the whole config.

Config --inputs.py--> Inputs (data, task, rewards: no weights yet)
   |                     |
   +------ build_run ----+--> Run: policy, sampler, reference, publisher, checkpoints, settings
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from strop.checkpoint.groups import GroupsPart
from strop.checkpoint.manifest import ModelIdentity
from strop.checkpoint.parts import StatePart
from strop.checkpoint.store import BestRule, FolderStore
from strop.cluster.local import LocalCluster
from strop.config.bundles import resolve_algorithm
from strop.config.root import Config
from strop.data import MixtureStream, PromptStream, build_stream
from strop.devices import build_device
from strop.errors import CheckpointError
from strop.protocols import CheckpointPart, Device
from strop.records import Group
from strop.rollout.native.engine import NativeEngine
from strop.rollout.router import GatedRouter
from strop.trainers.drift import DriftGauge
from strop.trainers.inputs import Inputs, training_sampling
from strop.trainers.learner import build_learner, load_checked
from strop.trainers.roles import Roles, StepSettings
from strop.trainers.run_folder import RunFolder
from strop.trainers.state import TrainerState
from strop.trainers.user_parts import named_algorithm
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.transfer import InProcessTransfer
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, WeightProof, default_bound

ENGINE_PART = "engine"
"""Where a checkpoint holds the policy."""


@dataclass(frozen=True)
class Run:
    """Everything that a schedule drives."""

    roles: Roles
    step: StepSettings
    policy: Fsdp2Engine
    engine: NativeEngine
    stream: PromptStream | MixtureStream
    publisher: Publisher
    proof: WeightProof
    cluster: LocalCluster
    device: Device
    state: TrainerState
    untrained: GroupsPart
    """Collected but untrained groups: none between two synchronous steps."""
    drift: DriftGauge

    @property
    def parts(self) -> dict[str, CheckpointPart]:
        """What a checkpoint holds."""
        critic = self.roles.critic
        return {
            ENGINE_PART: self.policy,
            **({"critic": critic} if critic is not None else {}),
            "prompts": StatePart(self.stream.state, self.stream.restore),
            "algorithm": StatePart(self.roles.algorithm.state, self.roles.algorithm.restore),
            "trainer": StatePart(self.state.as_dict, self.state.restore),
            "proof": self.proof,
            "drift": self.drift,
            "groups": self.untrained,
        }


def build_run(config: Config, inputs: Inputs) -> Run:
    """Loads the model, checks its packed attention, and builds every role of a run."""
    device = build_device(config.run.device)
    device.set_threads(config.run.threads)
    algorithm = named_algorithm(config)
    hf_model = load_checked(config)
    engine = _rollout_engine(config, inputs, hf_model, device)
    learner = build_learner(config, hf_model, algorithm, device)
    policy = learner.policy
    gate = LocalGate()
    proof = _proof(config, inputs, policy)
    transfer = InProcessTransfer(policy.export_weights, _rollout_dtype(config))
    publisher = Publisher([Replica("sampler-0", engine)], transfer, proof, gate)
    stream = build_stream(inputs.training, config.data, config.run.seed)
    roles = Roles(
        prompts=stream,
        sampler=GatedRouter(engine, gate),
        judge=inputs.judge,
        algorithm=algorithm,
        policy=policy,
        reference=learner.reference,
        critic=learner.critic,
        teachers=learner.teachers,
    )
    return Run(
        roles=roles,
        step=_step_settings(config, inputs, policy),
        policy=policy,
        engine=engine,
        stream=stream,
        publisher=publisher,
        proof=proof,
        cluster=_cluster(config),
        device=device,
        state=TrainerState(),
        untrained=GroupsPart(list, _refuse_groups),
        drift=DriftGauge(policy.score_tokens),
    )


def _cluster(config: Config) -> LocalCluster:
    match config.trainer.cluster:
        case "local":
            return LocalCluster()


def _refuse_groups(groups: list[Group]) -> None:
    if groups:
        raise CheckpointError(
            f"a synchronous run goes on from a checkpoint without untrained groups, got {len(groups)}",
            "Resume with the schedule that wrote it.",
        )


def _step_settings(config: Config, inputs: Inputs, policy: Fsdp2Engine) -> StepSettings:
    resolved = resolve_algorithm(config.algorithm, config.rollout.max_new_tokens)
    return StepSettings(
        num_prompts=config.rollout.prompts_per_step,
        group_size=config.rollout.group_size,
        sampling=training_sampling(config, inputs.stops),
        seed=config.run.seed,
        max_rounds=resolved.max_sampling_rounds,
        updates_per_batch=config.training.updates_per_batch,
        epochs_per_batch=config.training.epochs_per_batch,
        micro_batch_tokens=config.training.micro_batch_tokens,
        share_prefix=policy.shares_prefixes,
    )


def _rollout_dtype(config: Config) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, config.model.rollout_dtype or config.model.dtype)
    return dtype


def _rollout_engine(config: Config, inputs: Inputs, hf_model: PreTrainedModel, device: Device) -> NativeEngine:
    """Gives the sampler a copy of the model of its own: it holds what was published, never what is being trained."""
    sampler_model = copy.deepcopy(hf_model)
    nn.Module.to(sampler_model, device=device.torch_device, dtype=_rollout_dtype(config))
    match config.rollout.type:
        case "native":
            return NativeEngine(sampler_model, config.rollout, inputs.text_of_tokens, max_length=inputs.max_length)


def _proof(config: Config, inputs: Inputs, policy: Fsdp2Engine) -> WeightProof:
    """The probe begins as a prompt of the run does, so that its tokens are likely ones."""
    dtypes = (getattr(torch, config.model.dtype), _rollout_dtype(config))
    bound = config.weight_sync.max_logprob_difference or default_bound(*dtypes)
    probe = ProbeSettings(inputs.training.rows[0].token_ids, config.weight_sync.probe_tokens, config.run.seed)
    return WeightProof(probe, lambda token_ids: policy.score_tokens([token_ids])[0], bound)


def build_store(config: Config, folder: RunFolder, policy: Fsdp2Engine) -> FolderStore:
    """Opens the checkpoints of a run; they must be of this model."""
    best = None
    if config.checkpoint.keep_best is not None:
        best = BestRule(config.checkpoint.keep_best, config.checkpoint.best_is)
    identity = ModelIdentity.of(policy.export_weights())
    return FolderStore(folder.checkpoints, config.checkpoint.keep, best=best, model=identity)
