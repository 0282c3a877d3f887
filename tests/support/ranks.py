"""Several processes that train together, each driven as a controller would: they get their part of a plan, no more.

    controller: groups -> plan over ranks, with all that was scored --Job--> ranks: engine, critic --Outcome--> merged

The policy and the critic of every rank begin from what the controller saved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import set_forkserver_preload
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from transformers import PreTrainedModel

from strop.algorithms.build import build_algorithm
from strop.config.critic import CriticConfig
from strop.config.model import LoraConfig
from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.metrics import Metrics
from strop.models.lora import attach_adapters
from strop.protocols import UpdateReport
from strop.records import Group, MicroBatchPlan
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.sharding import full_tensor
from support.tiny import HYBRID_FAMILIES, tiny_model
from support.update_half import prepared_and_moved, ready_plan, resolved, step_settings, update_roles

ADAPTERS = LoraConfig(rank=4, alpha=8.0)


def spawn_ranks(work: Callable[..., None], num_ranks: int, folder: Path, *args: Any) -> None:
    """Runs `work(rank, *args)` in processes that form a gloo group; raises where one fails."""
    set_forkserver_preload(["torch", "transformers", "strop.trainers.step", "strop.training.fsdp2.critic"])
    store = folder / f"store-{num_ranks}"
    store.unlink(missing_ok=True)
    mp.start_processes(_joined, (work, num_ranks, store, args), nprocs=num_ranks, start_method="forkserver")


def _joined(rank: int, work: Callable[..., None], num_ranks: int, store: Path, args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(store), num_ranks), rank=rank, world_size=num_ranks)
    try:
        work(rank, *args)
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class Case:
    """One update: which algorithm, which batch, and how it is computed."""

    batch: str
    algorithm: dict[str, Any]
    max_tokens: int
    training: dict[str, Any] = field(default_factory=dict)
    lora: bool = False
    family: str = "llama"

    @property
    def shares_prefixes(self) -> bool:
        """Whether rows that begin alike are computed together."""
        return self.family not in HYBRID_FAMILIES

    def model(self) -> PreTrainedModel:
        """The tiny model of its family, with adapters where it has them."""
        model = tiny_model(self.family)
        if self.lora:
            attach_adapters(model, ADAPTERS)
        return model


@dataclass(frozen=True)
class Job:
    """What the ranks are sent."""

    case: Case
    folder: Path
    """Where the controller saved `policy` and, where there is one, `critic`."""
    plan: MicroBatchPlan
    critic_plan: MicroBatchPlan | None


@dataclass(frozen=True)
class Outcome:
    """What one update did; tensors are whole ones."""

    metrics: Metrics
    gradients: dict[str, Tensor]
    momenta: dict[str, Tensor]
    """The optimizer's means of gradients: they tell how the gradient was clipped."""
    weights: dict[str, Tensor]
    report: UpdateReport
    critic: "Outcome | None" = None


def policy_of(case: Case) -> Fsdp2Engine:
    """An engine of the case's model."""
    return Fsdp2Engine(
        case.model(),
        TrainingConfig(**{"learning_rate": 1e-2, "logprob_chunk_tokens": 64, **case.training}),
        temperature=1.0,
        device=CpuDevice(),
        needs=build_algorithm(resolved(**case.algorithm)).needs,
    )


def critic_of(case: Case) -> Fsdp2Critic:
    """A critic of the case's model."""
    training = TrainingConfig(**{"learning_rate": 1e-2, **case.training})
    return Fsdp2Critic(case.model(), CriticConfig(learning_rate=1e-2), training, device=CpuDevice())


def make_job(case: Case, groups: Sequence[Group], num_ranks: int, folder: Path) -> Job:
    """Prepares the groups as one mini-batch over the ranks, and saves models that moved since they sampled."""
    settings = resolved(**case.algorithm)
    roles = update_roles(settings, case.model(), micro_batch_tokens=case.max_tokens)
    how = step_settings(case.max_tokens, epochs=2, share_prefix=case.shares_prefixes, num_ranks=num_ranks)
    prepared = prepared_and_moved(roles, groups, how)
    (folder / "policy").mkdir(parents=True)
    roles.policy.save(folder / "policy")
    if roles.critic is not None:
        (folder / "critic").mkdir()
        roles.critic.save(folder / "critic")
    critic_plan = prepared.critic_plans[0] if roles.critic is not None else None
    return Job(case, folder, ready_plan(roles, prepared), critic_plan)


def do_job(job: Job, rank: int) -> Outcome:
    """Does one rank's part of the update; alone, rank 0 does the whole."""
    engine = policy_of(job.case)
    engine.load(job.folder / "policy")
    algorithm = build_algorithm(resolved(**job.case.algorithm))
    metrics = engine.forward_backward(job.plan.of_rank(rank), algorithm.loss)
    return _stepped(engine, metrics, _critic_outcome(job, rank))


def _critic_outcome(job: Job, rank: int) -> Outcome | None:
    if job.critic_plan is None:
        return None
    critic = critic_of(job.case)
    critic.begin_from(job.folder / "critic")
    return _stepped(critic, critic.forward_backward(job.critic_plan.of_rank(rank)), None)


def _stepped(learner: Fsdp2Engine | Fsdp2Critic, metrics: Metrics, critic: Outcome | None) -> Outcome:
    parameters = learner.optimizer.parameters
    gradients = {name: whole(weight.grad) for name, weight in parameters.items() if weight.grad is not None}
    report = learner.optimizer_step()
    state = learner.optimizer.state_tensors()
    momenta = {name: whole(value) for name, value in state["exp_avg"].items()}
    weights = {name: whole(weight) for name, weight in parameters.items()}
    return Outcome(metrics, gradients, momenta, weights, report, critic)


def whole(tensor: Tensor) -> Tensor:
    """A copy of a tensor, gathered where it is sharded."""
    return full_tensor(tensor.detach()).clone()


def do_jobs(rank: int, num_ranks: int, folder: Path) -> None:
    """Does every job of a file and leaves the outcomes behind."""
    jobs: dict[str, Job] = torch.load(folder / f"jobs-{num_ranks}.pt", weights_only=False)
    outcomes = {name: do_job(job, rank) for name, job in jobs.items()}
    torch.save(outcomes, folder / f"outcomes-{num_ranks}-{rank}.pt")


def outcomes_of(jobs: dict[str, Job], num_ranks: int, folder: Path) -> dict[str, list[Outcome]]:
    """Has the ranks do all jobs; returns by job what each rank did."""
    torch.save(jobs, folder / f"jobs-{num_ranks}.pt")
    if num_ranks == 1:
        do_jobs(0, 1, folder)
    else:
        spawn_ranks(do_jobs, num_ranks, folder, num_ranks, folder)
    files = [folder / f"outcomes-{num_ranks}-{rank}.pt" for rank in range(num_ranks)]
    loaded = [torch.load(file, weights_only=False) for file in files]
    return {name: [by_rank[name] for by_rank in loaded] for name in jobs}
