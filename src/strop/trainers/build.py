"""Wires a run together: the only file that sees the whole config.

Config --inputs.py--> Inputs (data, task, rewards: no weights yet)
   |                     |
   +------ build_run ----+--> Run: policy, sampler, reference, publisher, checkpoints, settings
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from strop.checkpoint.groups import GroupsPart
from strop.checkpoint.manifest import ModelIdentity
from strop.checkpoint.parts import StatePart
from strop.checkpoint.store import BestRule, FolderStore
from strop.cluster.local import LocalCluster
from strop.cluster.ray.cluster import RayCluster
from strop.config.bundles import resolve_algorithm
from strop.config.root import Config
from strop.data import MixtureStream, PromptStream, build_stream
from strop.errors import CheckpointError
from strop.protocols import Algorithm, CheckpointPart, Device
from strop.records import Group
from strop.rollout.router import Router
from strop.trainers.drift import DriftGauge
from strop.trainers.engines import rollout_dtype
from strop.trainers.inputs import Inputs, training_sampling
from strop.trainers.parts import Parts, Policy, local_parts
from strop.trainers.roles import Roles, StepSettings
from strop.trainers.run_folder import RunFolder
from strop.trainers.samplers import Samplers
from strop.trainers.state import TrainerState
from strop.trainers.user_parts import named_algorithm
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, WeightProof, default_bound

ENGINE_PART = "engine"
"""Where a checkpoint holds the policy."""


@dataclass(frozen=True)
class Run:
    """Everything that a schedule drives."""

    roles: Roles
    step: StepSettings
    policy: Policy
    samplers: Samplers
    router: Router
    stream: PromptStream | MixtureStream
    publisher: Publisher
    proof: WeightProof
    cluster: LocalCluster | RayCluster
    device: Device
    identity: ModelIdentity
    """Of the policy: what a checkpoint must be of."""
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


def build_run(config: Config, inputs: Inputs, logs: Path | None = None) -> Run:
    """Loads the models, here or in processes of their own, and joins every role of a run.

    `logs` is where processes of their own write what they print.
    """
    algorithm = named_algorithm(config)
    parts = _parts(config, inputs, algorithm, logs)
    gate = LocalGate()
    proof = _proof(config, inputs, parts.policy)
    engines = parts.samplers.engines
    replicas = [Replica(name, engine) for name, engine in engines.items()]
    stream = build_stream(inputs.training, config.data, config.run.seed)
    router = Router(engines, gate)
    roles = Roles(
        prompts=stream,
        sampler=router,
        judge=inputs.judge,
        algorithm=algorithm,
        policy=parts.policy,
        reference=parts.reference,
        critic=parts.critic,
        teachers=parts.teachers,
    )
    return Run(
        roles=roles,
        step=_step_settings(config, inputs, parts),
        policy=parts.policy,
        samplers=parts.samplers,
        router=router,
        stream=stream,
        publisher=Publisher(replicas, parts.transfer, proof, gate),
        proof=proof,
        cluster=parts.cluster,
        device=parts.device,
        identity=parts.identity,
        state=TrainerState(),
        untrained=GroupsPart(list, _refuse_groups),
        drift=DriftGauge(parts.policy.score_tokens),
    )


def _parts(config: Config, inputs: Inputs, algorithm: Algorithm, logs: Path | None) -> Parts:
    match config.cluster.type:
        case "local":
            return local_parts(config, inputs, algorithm)
        case "ray":
            from strop.trainers.remote.build import remote_parts

            return remote_parts(config, algorithm, logs)


def _refuse_groups(groups: list[Group]) -> None:
    if groups:
        raise CheckpointError(
            f"a synchronous run goes on from a checkpoint without untrained groups, got {len(groups)}",
            "Resume with the schedule that wrote it.",
        )


def _step_settings(config: Config, inputs: Inputs, parts: Parts) -> StepSettings:
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
        share_prefix=parts.shares_prefixes,
        num_ranks=parts.num_ranks,
        costs=parts.costs,
    )


def _proof(config: Config, inputs: Inputs, policy: Policy) -> WeightProof:
    """The probe begins as a prompt of the run does, so that its tokens are likely ones."""
    dtypes = (getattr(torch, config.model.dtype), rollout_dtype(config))
    bound = config.weight_sync.max_logprob_difference or default_bound(*dtypes)
    probe = ProbeSettings(inputs.training.rows[0].token_ids, config.weight_sync.probe_tokens, config.run.seed)
    return WeightProof(probe, lambda token_ids: policy.score_tokens([token_ids])[0], bound)


def build_store(config: Config, folder: RunFolder, identity: ModelIdentity) -> FolderStore:
    """Opens the checkpoints of a run; they must be of this model."""
    best = None
    if config.checkpoint.keep_best is not None:
        best = BestRule(config.checkpoint.keep_best, config.checkpoint.best_is)
    return FolderStore(folder.checkpoints, config.checkpoint.keep, best=best, model=identity)
