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
from strop.distillation.teachers import Teachers, model_section, teacher_names
from strop.errors import CheckpointError
from strop.models.attention.self_check import check_packed_attention
from strop.models.fused import fuse_layers
from strop.models.load import load_policy
from strop.models.lora import attach_adapters
from strop.protocols import Algorithm, CheckpointPart, Device, PlanScorer
from strop.records import Group
from strop.rollout.native.engine import NativeEngine
from strop.rollout.router import GatedRouter
from strop.trainers.drift import DriftGauge
from strop.trainers.inputs import Inputs, training_sampling
from strop.trainers.roles import Roles, StepSettings
from strop.trainers.run_folder import RunFolder
from strop.trainers.state import TrainerState
from strop.trainers.user_parts import named_algorithm
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.critic_load import load_critic
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.reference import AdapterFreeReference, FrozenReference
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
    hf_model = load_policy(config.model, config.rollout.stop_token_ids).hf_model
    check_packed_attention(hf_model)
    fuse_layers(hf_model)
    engine = _rollout_engine(config, inputs, hf_model, device)
    frozen = copy.deepcopy(hf_model) if algorithm.needs.reference and config.model.lora is None else None
    policy = _train_engine(config, algorithm, hf_model, device)
    gate = LocalGate()
    proof = _proof(config, inputs, policy)
    transfer = InProcessTransfer(_rollout_dtype(config))
    publisher = Publisher(policy.export_weights, [Replica("sampler-0", engine)], transfer, proof, gate)
    stream = build_stream(inputs.training, config.data, config.run.seed)
    roles = Roles(
        prompts=stream,
        sampler=GatedRouter(engine, gate),
        judge=inputs.judge,
        algorithm=algorithm,
        policy=policy,
        reference=_reference(config, algorithm, policy, frozen, device),
        critic=_critic(config, algorithm, device),
        teachers=_teachers(config, device),
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


def build_policy(config: Config, device: Device) -> Fsdp2Engine:
    """Loads the policy alone, as a run builds it: what reads a checkpoint without training needs no more."""
    return _train_engine(config, named_algorithm(config), load_policy(config.model).hf_model, device)


def _train_engine(config: Config, algorithm: Algorithm, hf_model: PreTrainedModel, device: Device) -> Fsdp2Engine:
    if config.model.lora is not None:
        attach_adapters(hf_model, config.model.lora, config.run.seed)
    match config.training.type:
        case "fsdp2":
            return Fsdp2Engine(
                hf_model, config.training, temperature=config.rollout.temperature, device=device, needs=algorithm.needs
            )


def _reference(
    config: Config, algorithm: Algorithm, policy: Fsdp2Engine, frozen: PreTrainedModel | None, device: Device
) -> PlanScorer | None:
    if not algorithm.needs.reference:
        return None
    if frozen is None:
        return AdapterFreeReference(policy)
    return FrozenReference(frozen, config.training, temperature=config.rollout.temperature, device=device)


def _critic(config: Config, algorithm: Algorithm, device: Device) -> Fsdp2Critic | None:
    if not algorithm.needs.values:
        return None
    return load_critic(config.model, config.critic, config.training, device=device, seed=config.run.seed)


def _teachers(config: Config, device: Device) -> Teachers | None:
    """Loads every teacher as the policy is loaded, frozen."""
    section = config.distillation
    if section is None:
        return None
    scorers: dict[str, PlanScorer] = {}
    for name, teacher in zip(teacher_names(section), section.teachers, strict=True):
        hf_model = load_policy(model_section(teacher)).hf_model
        check_packed_attention(hf_model)
        scorers[name] = FrozenReference(
            hf_model, config.training, temperature=config.rollout.temperature, device=device
        )
    return Teachers(scorers, section.route_column)


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
