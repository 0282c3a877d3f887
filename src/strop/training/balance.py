"""Shares a mini-batch out over ranks by what it costs to compute, not by how many samples it has.

    groups --whole, dearest first, to the rank with the least--> shares
           --where that is uneven: under ever lower bounds, a group that fits nowhere is split--> better shares
    a share --plan_micro_batches--> micro-batches of a rank, dearest first

A part of a split group repeats the prompt, which is part of its cost. A rank may get nothing; it takes part in the
collectives of the others all the same. Sharded models wait for each other in every layer, so each rank begins with its
dearest micro-batch: those computed at the same time are alike.

The weights of the loss were fixed over the whole mini-batch before, so no way to share it out changes the update.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from strop.metrics import Metrics, mean
from strop.records import Group, MicroBatchPlan
from strop.records.packing import SampleKey
from strop.training.costs import ComputeCosts
from strop.training.plan import bearing_keys, plan_micro_batches

PRECISION = 0.005
"""Relative: no better shares are looked for once the most loaded rank is this near to what could be reached."""

Keys = tuple[SampleKey, ...]
"""Samples of one group, in order."""


def plan_over_ranks(
    groups: Sequence[Group],
    keys: Iterable[SampleKey],
    weights: Mapping[SampleKey, float],
    *,
    num_ranks: int,
    costs: ComputeCosts,
    max_tokens: int,
    share_prefix: bool = True,
    whole_groups: bool = False,
) -> MicroBatchPlan:
    """Plans a mini-batch as `plan_micro_batches` does, and says which rank computes what.

    Args:
        groups: the step's groups.
        keys: (group, sample) of the mini-batch's samples.
        weights: the aggregation weight of each sampled token of a sample, over the whole mini-batch.
        num_ranks: how many processes train together.
        costs: of the model.
        max_tokens: the budget of a micro-batch.
        share_prefix: False computes every row on its own.
        whole_groups: keeps the samples of a group in one micro-batch.

    Returns:
        Micro-batches in the order of their ranks; a rank that gets nothing has none.
    """
    options = {"share_prefix": share_prefix, "whole_groups": whole_groups}
    shares = share_out(groups, bearing_keys(groups, keys, weights), num_ranks, costs, **options)
    plans = [plan_micro_batches(groups, share, weights, max_tokens=max_tokens, **options) for share in shares]
    if num_ranks == 1:
        return plans[0]
    ordered = [sorted(plan.micro_batches, key=costs.of_batch, reverse=True) for plan in plans]
    ranks = [rank for rank, batches in enumerate(ordered) for _ in batches]
    return MicroBatchPlan(tuple(batch for batches in ordered for batch in batches), tuple(ranks))


def share_out(
    groups: Sequence[Group],
    keys: Iterable[SampleKey],
    num_ranks: int,
    costs: ComputeCosts,
    *,
    share_prefix: bool = True,
    whole_groups: bool = False,
) -> list[list[SampleKey]]:
    """Returns the samples of each rank, such that the most loaded one has little more than the mean.

    The same arguments give the same shares, in any process. Never worse than handing out whole groups, dearest first,
    each to the rank with the least.
    """
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be at least 1, got {num_ranks}")
    balance = _Balance(groups, list(keys), costs, share_prefix=share_prefix)
    if num_ranks == 1:
        return [sorted(key for unit in balance.units for key in unit)]
    best = balance.whole_groups(num_ranks)
    low, high = balance.least_bound(num_ranks, whole_groups=whole_groups), balance.highest_load(best)
    while high > low * (1 + PRECISION):
        bound = (low + high) / 2
        found = balance.within(bound, num_ranks, may_split=not whole_groups)
        if found is None:
            low = bound
        else:
            best, high = found, min(bound, balance.highest_load(found))
    return [sorted(key for unit in share for key in unit) for share in best]


def balance_metrics(plan: MicroBatchPlan, num_ranks: int, costs: ComputeCosts) -> Metrics:
    """Says how uneven a plan is: 1 is even, 2 means that half of the time is spent waiting.

    `update/rank_imbalance` compares the most loaded rank with the mean; `update/lockstep_imbalance` counts what ranks
    wait that compute their first, second, ... micro-batches together.
    """
    by_rank = [[costs.of_batch(batch) for batch in plan.of_rank(rank).micro_batches] for rank in range(num_ranks)]
    total = sum(map(sum, by_rank))
    if not total:
        return {}
    most = max(map(len, by_rank))
    together = sum(max(batches[k] if k < len(batches) else 0.0 for batches in by_rank) for k in range(most))
    return {
        "update/rank_imbalance": mean(max(map(sum, by_rank)) * num_ranks / total, 1),
        "update/lockstep_imbalance": mean(together * num_ranks / total, 1),
    }


class _Balance:
    """The samples by group, the dearest group first, and what parts of groups cost."""

    def __init__(
        self, groups: Sequence[Group], keys: Sequence[SampleKey], costs: ComputeCosts, *, share_prefix: bool
    ) -> None:
        self._groups = groups
        self._costs = costs
        self._share_prefix = share_prefix
        self._known: dict[Keys, float] = {}
        by_group: dict[int, list[SampleKey]] = defaultdict(list)
        for key in sorted(keys):
            by_group[key[0]].append(key)
        self.units = sorted(map(tuple, by_group.values()), key=lambda unit: (-self.cost(unit), unit))

    def cost(self, keys: Keys) -> float:
        """What samples of one group cost, computed together."""
        if keys not in self._known:
            rows = [row for group, sample in keys for row in self._groups[group].samples[sample].rows]
            self._known[keys] = self._costs.of_rows(rows, share_prefix=self._share_prefix)
        return self._known[keys]

    def highest_load(self, shares: Sequence[Sequence[Keys]]) -> float:
        """The cost of the most loaded rank."""
        return max(sum(map(self.cost, share)) for share in shares)

    def least_bound(self, num_ranks: int, *, whole_groups: bool) -> float:
        """What the most loaded rank has at least: the mean, and what cannot be split."""
        parts = self.units if whole_groups else [(key,) for unit in self.units for key in unit]
        return max([sum(map(self.cost, self.units)) / num_ranks, *map(self.cost, parts)])

    def whole_groups(self, num_ranks: int) -> list[list[Keys]]:
        """Gives each group to the rank with the least so far."""
        shares: list[list[Keys]] = [[] for _ in range(num_ranks)]
        loads = [0.0] * num_ranks
        for unit in self.units:
            rank = loads.index(min(loads))
            shares[rank].append(unit)
            loads[rank] += self.cost(unit)
        return shares

    def within(self, bound: float, num_ranks: int, *, may_split: bool) -> list[list[Keys]] | None:
        """Gives each group to the first rank that has room for it, else parts of it to those with the most room."""
        shares: list[list[Keys]] = [[] for _ in range(num_ranks)]
        room = [bound] * num_ranks
        for unit in self.units:
            fitting = next((rank for rank in range(num_ranks) if self.cost(unit) <= room[rank]), None)
            parts = [(fitting, unit)] if fitting is not None else self._parts(unit, room) if may_split else None
            if parts is None:
                return None
            for rank, part in parts:
                shares[rank].append(part)
                room[rank] -= self.cost(part)
        return shares

    def _parts(self, unit: Keys, room: Sequence[float]) -> list[tuple[int, Keys]] | None:
        """Splits a group over as few ranks as its samples, taken in order, allow; None where room is too small."""
        parts: list[tuple[int, Keys]] = []
        for rank in sorted(range(len(room)), key=lambda rank: (-room[rank], rank)):
            count = 0
            while count < len(unit) and self.cost(unit[: count + 1]) <= room[rank]:
                count += 1
            if count:
                parts.append((rank, unit[:count]))
                unit = unit[count:]
            if not unit:
                return parts
        return None
