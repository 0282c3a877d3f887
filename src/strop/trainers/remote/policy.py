"""The policy, its reference, its critic and its teachers, as the controller sees them: every call goes to every rank.

A plan names the rank of each micro-batch; each rank is sent its part, and results are put back in the plan's order.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strop.cluster.ray.cluster import RemoteObject, wait_for_all
from strop.metrics import Metrics, merge
from strop.protocols import Algorithm, LossFunction, Scores, UpdateReport
from strop.records import MicroBatchPlan
from strop.trainers.remote.rank import CRITIC, POLICY


class Ranks:
    """All trainer ranks: asked together, so that their collectives meet. The controller stands still meanwhile."""

    def __init__(self, objects: Sequence[RemoteObject]) -> None:
        self.objects = list(objects)

    def __len__(self) -> int:
        return len(self.objects)

    def each(self, method: str, *args: Any) -> list[Any]:
        """Asks every rank the same and returns the answers by rank."""
        return wait_for_all([one.begin(method, *args) for one in self.objects])

    def first(self, method: str, *args: Any) -> Any:
        """Asks the first rank alone, for what needs no other."""
        return wait_for_all([self.objects[0].begin(method, *args)])[0]

    def parts(
        self, method: str, plan: MicroBatchPlan, before: tuple[Any, ...] = (), after: tuple[Any, ...] = ()
    ) -> list[Any]:
        """Sends each rank its part of a plan and returns the answers by rank."""
        calls = [one.begin(method, *before, plan.of_rank(rank), *after) for rank, one in enumerate(self.objects)]
        return wait_for_all(calls)


def _in_order(answers: Sequence[Sequence[Any]]) -> list[Any]:
    """Results of all micro-batches: the plan holds those of rank 0 first, then those of rank 1, and so on."""
    return [one for answer in answers for one in answer]


class RemoteScorer:
    """A frozen model of the ranks; implements `protocols.PlanScorer`."""

    def __init__(self, ranks: Ranks, which: str) -> None:
        self._ranks = ranks
        self._which = which

    def score(self, plan: MicroBatchPlan, *, top_k: int = 0, collisions: bool = False) -> list[Scores]:
        """Scores the targets, each rank its part."""
        return _in_order(self._ranks.parts("score", plan, (self._which,), (top_k, collisions)))


class RemotePolicy(RemoteScorer):
    """The policy over all ranks; implements `protocols.PolicyUpdater` and `CheckpointPart`."""

    def __init__(self, ranks: Ranks, algorithm: Algorithm) -> None:
        super().__init__(ranks, POLICY)
        self._algorithm = algorithm
        self.version = 0

    def forward_backward(self, plan: MicroBatchPlan, loss: LossFunction) -> Metrics:
        """Adds the gradient of the whole mini-batch, each rank its part.

        Raises ValueError for another loss than that of the run's algorithm: ranks have a copy of that one.
        """
        if loss != self._algorithm.loss:
            raise ValueError(
                "the loss must be that of the run's algorithm where trainers are other processes, got another one: "
                "name it in the run file as algorithm.loss"
            )
        return merge(self._ranks.parts("forward_backward", plan, after=(self._algorithm.state(),)))

    def optimizer_step(self) -> UpdateReport:
        """Updates every rank; the report is the same on all, but for the samples under suspicion."""
        return _one_report(self._ranks.each("optimizer_step", POLICY))

    def score_tokens(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences at temperature 1."""
        found: list[NDArray[np.float32]] = self._ranks.each("score_tokens", token_ids)[0]
        return found

    def set_version(self, version: int) -> None:
        """Says which version the weights are from now on."""
        self.version = version
        self._ranks.each("set_version", version)

    def save(self, folder: Path) -> None:
        """Writes parameters, optimizer and schedule into an existing folder; every rank takes part."""
        self._ranks.each("save", POLICY, folder)

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote."""
        self._ranks.each("load", POLICY, folder)


class RemoteCritic:
    """The critic over all ranks; implements `protocols.Critic`."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    @property
    def is_warming_up(self) -> bool:
        """Whether its next update is one of the first, in which the policy stays as it is."""
        return bool(self._ranks.first("is_warming_up"))

    def values(self, plan: MicroBatchPlan) -> list[Tensor]:
        """One [N] tensor a micro-batch."""
        return _in_order(self._ranks.parts("values", plan))

    def forward_backward(self, plan: MicroBatchPlan) -> Metrics:
        """Adds the gradient of the value loss, each rank its part."""
        return merge(self._ranks.parts("critic_forward_backward", plan))

    def optimizer_step(self) -> UpdateReport:
        """Updates every rank."""
        return _one_report(self._ranks.each("optimizer_step", CRITIC))

    def save(self, folder: Path) -> None:
        """Writes parameters and optimizer into an existing folder."""
        self._ranks.each("save", CRITIC, folder)

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote."""
        self._ranks.each("load", CRITIC, folder)


def _one_report(reports: Sequence[UpdateReport]) -> UpdateReport:
    """Joins what the ranks said of one update."""
    suspects = sorted({key for report in reports for key in report.suspects})
    first = next((report for report in reports if report.suspects), reports[0])
    return UpdateReport(
        first.gradient_norm, first.learning_rate, applied=first.applied, reason=first.reason, suspects=tuple(suspects)
    )
