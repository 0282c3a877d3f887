"""One trainer rank: the models that learn and the frozen ones beside them, in a process of its own.

The controller holds the groups and plans the micro-batches; a rank computes its part of each plan. All ranks are asked
the same things in the same order, so that their collectives meet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from strop.checkpoint.manifest import ModelIdentity
from strop.config.root import Config
from strop.devices import build_device
from strop.metrics import Metrics
from strop.protocols import CheckpointPart, PlanScorer, Scores, UpdateReport
from strop.records import MicroBatchPlan, WeightReceipt
from strop.trainers.learner import Learner, build_learner, load_checked
from strop.trainers.remote.transfers import sending_half
from strop.trainers.user_parts import named_algorithm
from strop.training.costs import ComputeCosts
from strop.training.fsdp2.critic import Fsdp2Critic

POLICY, REFERENCE, CRITIC = "policy", "reference", "critic"
"""What a rank holds, by name; teachers go by their own names behind `teacher:`."""
TEACHER = "teacher:"
COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""How long a rank waits for the others in a collective: one that died is noticed by its actor, and sooner."""


@dataclass(frozen=True)
class RankFacts:
    """What a rank says of its policy."""

    shares_prefixes: bool
    """Whether plans may share prefixes."""
    costs: ComputeCosts
    """What work is shared out by."""


class TrainerRank:
    """Lives in an actor of `cluster.ray`; its plain methods run one after the other."""

    def __init__(self, config: Config, rank: int, num_ranks: int, rendezvous: str | None, num_threads: int) -> None:
        """Joins the other ranks and loads the models.

        Args:
            config: of the run.
            rank: which of the ranks this is.
            num_ranks: how many there are.
            rendezvous: where ranks meet, as `tcp://host:port`; None where there is one.
            num_threads: of torch in this process.
        """
        device = build_device(config.run.device)
        device.set_threads(num_threads)
        if num_ranks > 1:
            dist.init_process_group(
                device.collective_backend,
                init_method=rendezvous,
                rank=rank,
                world_size=num_ranks,
                timeout=COLLECTIVE_TIMEOUT,
            )
        self.rank = rank
        self.device = device
        self.algorithm = named_algorithm(config)
        self.learner: Learner = build_learner(config, load_checked(config), self.algorithm, device)
        dtype: torch.dtype = getattr(torch, config.model.rollout_dtype or config.model.dtype)
        self._sending = sending_half(config.weight_sync, self.learner.policy.export_weights, dtype, rank)

    def facts(self) -> "RankFacts":
        """What the controller plans by."""
        policy = self.learner.policy
        return RankFacts(policy.shares_prefixes, ComputeCosts.of_model(policy.causal_lm))

    def identity(self) -> ModelIdentity:
        """What a checkpoint must be of."""
        return ModelIdentity.of(self.learner.policy.export_weights())

    # ------------------------------------------------------------------------------------------- scoring

    def score(self, which: str, plan: MicroBatchPlan, top_k: int, collisions: bool) -> list[Scores]:
        """Scores this rank's micro-batches by one of its models."""
        return self._scorer(which).score(plan, top_k=top_k, collisions=collisions)

    def _scorer(self, which: str) -> PlanScorer:
        learner = self.learner
        if which.startswith(TEACHER) and learner.teachers is not None:
            return learner.teachers.scorers[which.removeprefix(TEACHER)]
        scorer = {POLICY: learner.policy, REFERENCE: learner.reference}.get(which)
        if scorer is None:
            raise ValueError(f"a rank must hold what is asked to score, got {which!r}")
        return scorer

    def score_tokens(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences at temperature 1; every rank gives the same."""
        return self.learner.policy.score_tokens(token_ids)

    def values(self, plan: MicroBatchPlan) -> list[Tensor]:
        """The critic's values of this rank's micro-batches."""
        return self._critic().values(plan)

    # ------------------------------------------------------------------------------------------- learning

    def forward_backward(self, plan: MicroBatchPlan, algorithm_state: Mapping[str, Any]) -> Metrics:
        """Adds the gradient of this rank's part, with the loss of the run's algorithm as it stands."""
        self.algorithm.restore(algorithm_state)
        return self.learner.policy.forward_backward(plan, self.algorithm.loss)

    def critic_forward_backward(self, plan: MicroBatchPlan) -> Metrics:
        """Adds the critic's gradient of this rank's part."""
        return self._critic().forward_backward(plan)

    def optimizer_step(self, which: str) -> UpdateReport:
        """Updates the policy or the critic; every rank does the same."""
        return self.learner.policy.optimizer_step() if which == POLICY else self._critic().optimizer_step()

    def is_warming_up(self) -> bool:
        """Whether the critic's next update is one without the policy's."""
        return self._critic().is_warming_up

    def _critic(self) -> Fsdp2Critic:
        if self.learner.critic is None:
            raise ValueError("a rank must hold a critic to be asked for values, got none")
        return self.learner.critic

    # ------------------------------------------------------------------------------------------- weights

    def open_stream(self, names: Sequence[str]) -> dict[str, Any]:
        """As `transfer.SendingHalf` does."""
        return self._sending.open_stream(names)

    def send_stream(self, version: int, scale: float) -> WeightReceipt:
        """As `transfer.SendingHalf` does: the first rank sends, the others take part in gathering."""
        return self._sending.send_stream(version, scale)

    async def close_stream(self) -> None:
        """As `transfer.SendingHalf` does."""
        await self._sending.close_stream()

    def set_version(self, version: int) -> None:
        """Says which version the weights are from now on."""
        self.learner.policy.set_version(version)

    def save(self, which: str, folder: Path) -> None:
        """Writes the policy or the critic into an existing folder; every rank takes part."""
        self._part(which).save(folder)

    def load(self, which: str, folder: Path) -> None:
        """Restores it."""
        self._part(which).load(folder)

    def _part(self, which: str) -> CheckpointPart:
        return self.learner.policy if which == POLICY else self._critic()

    def peak_memory_bytes(self) -> int:
        """Peak memory of this process."""
        return self.device.peak_memory_bytes()
