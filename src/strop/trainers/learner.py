"""What learns, and the frozen models beside it: built in one process, or in each trainer rank."""

import copy
from dataclasses import dataclass

from transformers import PreTrainedModel

from strop.config.root import Config
from strop.distillation.teachers import Teachers, model_section, teacher_names
from strop.models.attention.self_check import check_packed_attention
from strop.models.fused import fuse_layers
from strop.models.load import load_policy
from strop.models.lora import attach_adapters
from strop.protocols import Algorithm, Device, PlanScorer
from strop.trainers.user_parts import named_algorithm
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.critic_load import load_critic
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.reference import AdapterFreeReference, FrozenReference


@dataclass(frozen=True)
class Learner:
    """The models of a trainer."""

    policy: Fsdp2Engine
    reference: PlanScorer | None
    critic: Fsdp2Critic | None
    teachers: Teachers | None


def load_checked(config: Config) -> PreTrainedModel:
    """Loads the policy's model, compares its packed attention with its own forward, and fuses layers."""
    hf_model = load_policy(config.model, config.rollout.stop_token_ids).hf_model
    check_packed_attention(hf_model)
    fuse_layers(hf_model)
    return hf_model


def build_learner(config: Config, hf_model: PreTrainedModel, algorithm: Algorithm, device: Device) -> Learner:
    """Takes the model over as the policy, and loads what the algorithm asks for beside it."""
    frozen = copy.deepcopy(hf_model) if algorithm.needs.reference and config.model.lora is None else None
    policy = _train_engine(config, algorithm, hf_model, device)
    return Learner(
        policy=policy,
        reference=_reference(config, algorithm, policy, frozen, device),
        critic=_critic(config, algorithm, device),
        teachers=_teachers(config, device),
    )


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
