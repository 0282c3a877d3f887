"""Wires an offline run together."""

import copy
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from strop.algorithms.offline.build import build_method
from strop.algorithms.offline.method import OfflineMethod
from strop.checkpoint.manifest import ModelIdentity
from strop.checkpoint.parts import StatePart
from strop.checkpoint.store import BestRule, FolderStore
from strop.config.offline import OfflineConfig
from strop.config.training import TrainingConfig
from strop.data.offline.stream import ExampleStream
from strop.devices import build_device
from strop.models.attention.self_check import check_packed_attention
from strop.models.fused import fuse_layers
from strop.models.load import load_policy
from strop.models.lora import attach_adapters
from strop.protocols import AlgorithmNeeds, CheckpointPart, Device, PlanScorer
from strop.trainers.build import ENGINE_PART
from strop.trainers.offline.inputs import OfflineInputs
from strop.trainers.offline.passes import OfflineRoles
from strop.trainers.offline.state import OfflineState
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.reference import AdapterFreeReference, FrozenReference


@dataclass(frozen=True)
class OfflineRun:
    """Everything that the loop drives."""

    roles: OfflineRoles
    stream: ExampleStream
    batch_size: int
    device: Device
    state: OfflineState

    @property
    def parts(self) -> dict[str, CheckpointPart]:
        """What a checkpoint holds."""
        return {
            ENGINE_PART: self.roles.policy,
            "examples": StatePart(self.stream.state, self.stream.restore),
            "trainer": StatePart(self.state.as_dict, self.state.restore),
        }


def build_offline_run(config: OfflineConfig, inputs: OfflineInputs) -> OfflineRun:
    """Loads the model, checks its packed attention, and builds policy, reference and stream."""
    device = build_device(config.run.device)
    device.set_threads(config.run.threads)
    method = build_method(config.offline)
    loaded = load_policy(config.model)
    check_packed_attention(loaded.hf_model)
    fuse_layers(loaded.hf_model)
    needs_copy = method.needs.reference and config.model.lora is None
    frozen = copy.deepcopy(loaded.hf_model) if needs_copy else None
    training = _training(config, inputs.total_steps(config))
    policy = _engine(config, training, method, loaded.hf_model, device)
    reference = _reference(method, policy, frozen, training, device)
    stream = ExampleStream(
        inputs.training, seed=config.run.seed, shuffle=config.data.shuffle, epochs=config.data.epochs
    )
    roles = OfflineRoles(method, policy, reference, loaded.max_length)
    return OfflineRun(roles, stream, config.training.batch_size, device, OfflineState())


def build_offline_policy(config: OfflineConfig, device: Device) -> Fsdp2Engine:
    """Loads the policy alone, as a run builds it: what reads a checkpoint without training needs no more."""
    hf_model = load_policy(config.model).hf_model
    return _engine(config, _training(config, 1), build_method(config.offline), hf_model, device)


def build_offline_store(config: OfflineConfig, folder: Path, policy: Fsdp2Engine) -> FolderStore:
    """Opens the checkpoints of a run; they must be of this model."""
    best = None
    if config.checkpoint.keep_best is not None:
        best = BestRule(config.checkpoint.keep_best, config.checkpoint.best_is)
    identity = ModelIdentity.of(policy.export_weights())
    return FolderStore(folder, config.checkpoint.keep, best=best, model=identity)


def _training(config: OfflineConfig, total_steps: int) -> TrainingConfig:
    """The training section with the course of the learning rate over the whole run."""
    section = config.training
    if section.schedule == "constant" or section.schedule_updates is not None:
        return section
    return section.model_copy(update={"schedule_updates": max(total_steps, section.warmup_updates + 1)})


def _engine(
    config: OfflineConfig, training: TrainingConfig, method: OfflineMethod, hf_model: PreTrainedModel, device: Device
) -> Fsdp2Engine:
    if config.model.lora is not None:
        attach_adapters(hf_model, config.model.lora, config.run.seed)
    needs = AlgorithmNeeds(
        reference_logprobs=method.needs.reference, on_policy_gradient_known=method.needs.known_gradient
    )
    match training.type:
        case "fsdp2":
            return Fsdp2Engine(hf_model, training, temperature=1.0, device=device, needs=needs)


def _reference(
    method: OfflineMethod,
    policy: Fsdp2Engine,
    frozen: PreTrainedModel | None,
    training: TrainingConfig,
    device: Device,
) -> PlanScorer | None:
    if not method.needs.reference:
        return None
    if frozen is None:
        return AdapterFreeReference(policy)
    return FrozenReference(frozen, training, temperature=1.0, device=device)
