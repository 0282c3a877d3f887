"""One row of the compatibility matrix as the sections of a run file, and as a whole step of a tiny model."""

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch

from strop.algorithms.build import build_algorithm
from strop.config.algorithm import Aggregation
from strop.config.bundles import resolve_algorithm
from strop.config.checks import check
from strop.config.compatibility import ADVANTAGES, CORRECTIONS, KL_TERMS, LOSSES, Combination, reason_against
from strop.config.root import Config
from strop.metrics import Metrics
from strop.models.lora import attach_adapters
from strop.protocols import PlanScorer, UpdateReport
from strop.trainers.session import Session
from strop.trainers.step import collect, prepare_update, update
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.reference import AdapterFreeReference, FrozenReference
from strop.transfer import InProcessTransfer
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, WeightProof
from support.covering import Row
from support.runs import tiny_run

FACTORS: dict[str, tuple[str, ...]] = {
    "advantage": ADVANTAGES,
    "kl": KL_TERMS,
    "loss": LOSSES,
    "correction": CORRECTIONS,
    "aggregation": get_args(Aggregation),
    "updates": ("1", "2x2"),
    "weights": ("full", "lora"),
}
"""What an algorithm is put together from, how often a batch is trained on, and what is trained."""

_CORRECTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "two-policy": {"policies": 2},
    "token": {"weight": "token", "normalise": True},
    "sequence": {"weight": "sequence"},
    "token-band": {"token_band": [0.5, 2.0]},
    "geometric-band": {"geometric_band": [0.5, 2.0]},
    "sequence-band": {"sequence_band": [0.5, 2.0]},
}
_LORA = {"rank": 4, "alpha": 8.0}


def parts_of(row: Row) -> Combination:
    """The parts that the matrix speaks of; those that the row leaves open go with everything."""
    return Combination(
        row.get("advantage", "group"), row.get("loss", "clip"), row.get("kl", "none"), row.get("correction", "none")
    )


def is_allowed(row: Row) -> bool:
    """Whether the matrix has nothing against the row, or against the beginning of one."""
    return reason_against(parts_of(row)) is None


def config_of(row: Row, folder: Path) -> Config:
    """The run file of a row: 2 prompts x 4 samples x 6 tokens."""
    algorithm: dict[str, Any] = {
        "advantage": row["advantage"],
        "loss": row["loss"],
        "aggregation": row["aggregation"],
        "correction": _CORRECTIONS[row["correction"]],
        **({"pass_k": 2} if row["advantage"] == "pass_at_k" else {}),
    }
    if row["kl"] != "none":
        place, _, estimator = row["kl"].partition(":")
        algorithm |= {"kl_coefficient": 0.1, "kl_placement": place, "kl_estimator": estimator}
    times = 2 if row["updates"] == "2x2" else 1
    return tiny_run(
        folder,
        rollout={"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6},
        algorithm=algorithm,
        training={"learning_rate": 1e-2, "updates_per_batch": times, "epochs_per_batch": times},
        model={"lora": _LORA if row["weights"] == "lora" else None},
    )


@dataclass(frozen=True)
class Stepped:
    """What a step did."""

    metrics: Metrics
    reports: list[UpdateReport]
    moved: bool
    """Whether a trained weight is another than before."""
    published: bool
    """Whether the sampler's weights were proven to be the trained ones."""


def step_of(row: Row, session: Session, folder: Path) -> Stepped:
    """Collects with the session's sampler, updates a copy of its model as the row says, publishes, and proves."""
    config = config_of(row, folder)
    check(config)
    run, algorithm = session.run, build_algorithm(resolve_algorithm(config.algorithm, config.rollout.max_new_tokens))
    policy = _policy(session, config, algorithm.needs)
    proof = WeightProof(
        ProbeSettings(session.inputs.training.rows[0].token_ids, 8, 0), lambda ids: policy.score_tokens([ids])[0], 1e-3
    )
    gate = LocalGate()
    transfer = InProcessTransfer(policy.export_weights, torch.float32)
    publisher = Publisher([Replica(*named) for named in run.samplers.engines.items()], transfer, proof, gate)
    run.cluster.run(publisher.start(0, canary=False))
    roles = replace(
        run.roles,
        algorithm=algorithm,
        policy=policy,
        reference=_reference(session, config, policy),
        critic=_critic(session, config) if algorithm.needs.values else None,
    )
    times = config.training.updates_per_batch
    settings = replace(run.step, updates_per_batch=times, epochs_per_batch=times)
    before = {name: weight.detach().clone() for name, weight in policy.causal_lm.named_parameters()}
    collected = run.cluster.run(collect(roles, settings))
    updated = update(roles, settings, prepare_update(roles, settings, collected.kept))
    policy.set_version(1)
    metrics = run.cluster.run(publisher.publish(1))
    moved = any(not torch.equal(weight, before[name]) for name, weight in policy.causal_lm.named_parameters())
    state = metrics["sync/state"].result
    return Stepped(updated.metrics, updated.reports, moved, published=state == 1)


def _policy(session: Session, config: Config, needs: Any) -> Fsdp2Engine:
    hf_model = copy.deepcopy(session.run.policy.causal_lm)
    if config.model.lora is not None:
        attach_adapters(hf_model, config.model.lora)
    return Fsdp2Engine(hf_model, config.training, temperature=1.0, device=session.run.device, needs=needs)


def _reference(session: Session, config: Config, policy: Fsdp2Engine) -> PlanScorer:
    if config.model.lora is not None:
        return AdapterFreeReference(policy)
    hf_model = copy.deepcopy(session.run.policy.causal_lm)
    return FrozenReference(hf_model, config.training, temperature=1.0, device=session.run.device)


def _critic(session: Session, config: Config) -> Fsdp2Critic:
    hf_model = copy.deepcopy(session.run.policy.causal_lm)
    return Fsdp2Critic(hf_model, config.critic, config.training, device=session.run.device)


def not_finite(metrics: Metrics) -> list[str]:
    """The names of the metrics that have a value which is no finite number."""
    results = {name: metric.result for name, metric in metrics.items()}
    return [name for name, result in results.items() if result is not None and not math.isfinite(result)]
