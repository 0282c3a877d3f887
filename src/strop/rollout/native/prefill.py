"""Computes prompts, and the tokens that resumed samples bring along, in one packed pass without reading the cache.

    group 0   [prompt.......]                 -> prompt row, logits for first tokens
                sample 3     [t0 t1 t2]       -> own row 3, logits for t3

A prompt is computed once for its group. It is computed again only where a resumed sample is admitted after its group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from strop.models.attention import AttentionCall, TreeLayout
from strop.records import Segment
from strop.rollout.native.memory import KvMemory, KvRectangle
from strop.rollout.native.network import Network
from strop.rollout.native.samples import GrowingGroup, GrowingSample


@dataclass(slots=True)
class CacheWrites:
    """Which computed tokens go where in one rectangle."""

    tokens: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def add(self, start: int, count: int, row: int) -> None:
        """Sends `count` tokens from `start` on to the front of a row."""
        self.tokens.extend(range(start, start + count))
        self.rows.extend([row] * count)
        self.positions.extend(range(count))


@dataclass(slots=True)
class PrefillPlan:
    """What one pass computes, and where its keys, values and logits go."""

    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    prompt_writes: CacheWrites = field(default_factory=CacheWrites)
    own_writes: CacheWrites = field(default_factory=CacheWrites)
    group_logits: list[tuple[GrowingGroup, int]] = field(default_factory=list)
    """Groups and the token whose logits give their first tokens."""
    sample_logits: list[tuple[GrowingSample, int]] = field(default_factory=list)
    """Resumed samples and the token whose logits give their next one."""

    def add_segment(self, token_ids: Sequence[int], parent: Segment | None, parent_index: int | None) -> int:
        """Appends a run of tokens; returns where it starts."""
        start = len(self.token_ids)
        first = 0 if parent is None else parent.num_tokens
        self.token_ids.extend(token_ids)
        self.positions.extend(range(first, first + len(token_ids)))
        stop = len(self.token_ids)
        self.segments.append(Segment(start, stop, parent_index, stop))
        return start


def plan_prefill(
    admitted: Sequence[GrowingSample], running: Sequence[GrowingSample], groups: Sequence[GrowingGroup]
) -> PrefillPlan:
    """Plans the pass for samples that have just been admitted; rows are places in `running` and `groups`."""
    plan = PrefillPlan()
    own_rows = {id(sample): row for row, sample in enumerate(running)}
    prompt_rows = {id(group): row for row, group in enumerate(groups)}
    by_group: dict[int, list[GrowingSample]] = {}
    for sample in admitted:
        by_group.setdefault(id(sample.group), []).append(sample)
    for samples in by_group.values():
        group = samples[0].group
        resumed = [sample for sample in samples if sample.token_ids]
        if group.is_cached and not resumed:
            continue
        _plan_group(plan, group, prompt_rows[id(group)], [(one, own_rows[id(one)]) for one in resumed])
    return plan


def _plan_group(
    plan: PrefillPlan, group: GrowingGroup, prompt_row: int, resumed: Sequence[tuple[GrowingSample, int]]
) -> None:
    root_index = len(plan.segments)
    start = plan.add_segment(group.request.prompt_token_ids.tolist(), None, None)
    root = plan.segments[root_index]
    if not group.is_cached:
        plan.prompt_writes.add(start, root.num_tokens, prompt_row)
        plan.group_logits.append((group, root.stop - 1))
    for sample, row in resumed:
        own_start = plan.add_segment(sample.token_ids, root, root_index)
        plan.own_writes.add(own_start, len(sample.token_ids), row)
        plan.sample_logits.append((sample, len(plan.token_ids) - 1))
    plan.segments[root_index] = Segment(root.start, root.stop, None, len(plan.token_ids))


def run_prefill(plan: PrefillPlan, network: Network, memory: KvMemory) -> dict[int, torch.Tensor]:
    """Computes the plan and fills the cache; returns [V] logits by id of each resumed sample.

    The groups' own logits are left in their `first_logits_V`.
    """
    if not plan.token_ids:
        return {}
    device = network.device
    layout = PrefillLayout(plan, memory, device)
    token_ids_T = torch.tensor(plan.token_ids, device=device)
    hidden_TH = network.hidden(token_ids_T, torch.tensor(plan.positions, device=device), layout)
    wanted = [token for _, token in (*plan.group_logits, *plan.sample_logits)]
    logits_NV = network.logits(hidden_TH[torch.tensor(wanted, device=device)])
    for row, (group, _) in enumerate(plan.group_logits):
        group.first_logits_V = logits_NV[row]
        group.is_cached = True
    rows = range(len(plan.group_logits), len(wanted))
    return {id(sample): logits_NV[row] for row, (sample, _) in zip(rows, plan.sample_logits, strict=True)}


class PrefillLayout:
    """Tree attention over the computed tokens, which also writes their keys and values into the cache."""

    def __init__(self, plan: PrefillPlan, memory: KvMemory, device: torch.device) -> None:
        self._tree = TreeLayout(plan.segments)
        self._targets = [
            _CacheTarget(rectangle, writes, device)
            for rectangle, writes in ((memory.prefixes, plan.prompt_writes), (memory.own, plan.own_writes))
            if writes.tokens
        ]

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Returns [1, T, H, D]."""
        for target in self._targets:
            target.write(call)
        return self._tree.attend(call)


class _CacheTarget:
    def __init__(self, rectangle: KvRectangle, writes: CacheWrites, device: torch.device) -> None:
        self._rectangle = rectangle
        self._tokens_T = torch.tensor(writes.tokens, device=device)
        self._rows_T = torch.tensor(writes.rows, device=device)
        self._positions_T = torch.tensor(writes.positions, device=device)
        self._places: dict[int, torch.Tensor] = {}

    def write(self, call: AttentionCall) -> None:
        num_key_heads = call.key.shape[1]
        if num_key_heads not in self._places:
            self._places[num_key_heads] = self._rectangle.flat_places(self._rows_T, self._positions_T, num_key_heads)
        key, value = call.key[:, :, self._tokens_T], call.value[:, :, self._tokens_T]
        self._rectangle.write(call.layer_index, key, value, self._places[num_key_heads])
