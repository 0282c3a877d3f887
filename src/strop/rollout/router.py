"""The way of a request to one of several engines: through the gate that publications shut, to the least loaded.

    generate(request) --> gate open? --> replica with the least work --> completions
                             ^                    | lost: its process is gone
                             +--------------------+ the whole request again, elsewhere, with the same streams

A request is a group: its samples stay together, so that their prompt is computed once. Streams belong to samples and
not to engines, so a request that is redone draws the same random numbers; and since an engine that is lost has
returned nothing, nothing is lost or doubled.
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from strop.metrics import Metrics, maximum, total
from strop.protocols import RolloutEngine
from strop.records import Completion, GroupRequest
from strop.rollout.errors import ReplicaLostError

_REMEMBERED_PROMPTS: Final = 4096
LOST: Final = (ReplicaLostError, ConnectionError)
"""What engines raise when they are gone."""


class Gate(Protocol):
    """Lets a request through unless a publication is under way."""

    def request(self) -> AbstractAsyncContextManager[None]:
        """Waits until the gate is open and counts the request as inside."""


@dataclass
class _Replica:
    """One engine and the work that it has."""

    name: str
    engine: RolloutEngine
    open_tokens: int = 0
    """Tokens that the requests inside may still cost."""
    sampled_tokens: int = 0
    """Since the metrics were last taken."""


class Router:
    """Shares requests out over engines; implements `protocols.Sampler`. All calls come from one event loop."""

    def __init__(
        self, engines: Mapping[str, RolloutEngine], gate: Gate, *, lost: tuple[type[Exception], ...] = LOST
    ) -> None:
        """Takes the engines by name, which `Publisher` calls them by, too.

        `lost` are the errors that mean that an engine is gone; every other one goes to who asked.
        """
        if not engines:
            raise ValueError("there must be at least one engine to send requests to, got none")
        self._replicas = {name: _Replica(name, engine) for name, engine in engines.items()}
        self._lost: dict[str, Exception] = {}
        self._gate = gate
        self._lost_errors = lost
        self._homes: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._num_requests = 0
        self._num_redone = 0

    @property
    def lost(self) -> Mapping[str, Exception]:
        """The engines that are gone, and how that showed; `admit` brings one back."""
        return dict(self._lost)

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """Completes a prompt once per stream, on one engine; waits while weights are being published.

        Where the engine is lost, the request is redone whole on another. Raises ReplicaLostError when none is left.
        """
        self._num_requests += 1
        while True:
            async with self._gate.request():
                replica = self._choose(request)
                completions = await self._ask(replica, request)
            if completions is not None:
                return completions
            self._num_redone += 1

    def admit(self, name: str, engine: RolloutEngine) -> None:
        """Sends requests to an engine that was started anew, once its weights are proven."""
        self._lost.pop(name, None)
        self._replicas[name] = _Replica(name, engine)

    def leave_out(self, name: str, error: Exception) -> None:
        """Sends no more requests to an engine that is gone, as was found elsewhere."""
        if self._replicas.pop(name, None) is not None:
            self._lost[name] = error

    def take_metrics(self) -> Metrics:
        """Returns what was counted since the last call."""
        sampled: list[int] = [replica.sampled_tokens for replica in self._replicas.values()]
        metrics: Metrics = {
            "rollout/requests": total(self._num_requests),
            "rollout/redone_requests": total(self._num_redone),
            "rollout/replicas_lost": maximum(len(self._lost)),
        }
        if len(sampled) > 1 and any(sampled):
            metrics["rollout/replica_imbalance"] = maximum(max(sampled) * len(sampled) / sum(sampled), "x mean")
        self._num_requests = self._num_redone = 0
        for replica in self._replicas.values():
            replica.sampled_tokens = 0
        return metrics

    async def _ask(self, replica: _Replica, request: GroupRequest) -> list[Completion] | None:
        """Returns the completions; None where the engine was lost meanwhile."""
        cost = _cost(request)
        replica.open_tokens += cost
        try:
            completions = await replica.engine.generate(request)
        except self._lost_errors as error:
            if self._replicas.get(replica.name) is replica:
                del self._replicas[replica.name]
                self._lost[replica.name] = error
            return None
        finally:
            replica.open_tokens -= cost
        replica.sampled_tokens += _num_new_tokens(request, completions)
        return completions

    def _choose(self, request: GroupRequest) -> _Replica:
        """The least loaded; another than the prompt's last one would have to compute the prompt again."""
        if not self._replicas:
            told = "; ".join(f"{name}: {error}" for name, error in self._lost.items())
            raise ReplicaLostError(f"at least one sampler must be alive to sample, all are gone: {told}")
        key = (request.streams[0].prompt_id, request.streams[0].visit)
        home = self._homes.pop(key, None)
        again = len(request.prompt_token_ids)

        def load(replica: _Replica) -> int:
            return replica.open_tokens + (0 if home in (None, replica.name) else again)

        chosen = min(self._replicas.values(), key=load)
        self._homes[key] = chosen.name
        if len(self._homes) > _REMEMBERED_PROMPTS:
            self._homes.popitem(last=False)
        return chosen


def _cost(request: GroupRequest) -> int:
    """Tokens that a request may cost: its prompt once, and what each sample may still draw."""
    budgets = request.budgets or (request.sampling.max_new_tokens,) * len(request.streams)
    drawn = [0 if one is None else len(one.token_ids) for one in request.partial or (None,) * len(budgets)]
    return len(request.prompt_token_ids) + sum(budgets) - sum(drawn)


def _num_new_tokens(request: GroupRequest, completions: list[Completion]) -> int:
    drawn = sum(len(one.token_ids) for one in request.partial if one is not None)
    return sum(len(one.token_ids) for one in completions) - drawn
