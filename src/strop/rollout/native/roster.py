"""Who waits and who runs. Pure bookkeeping: rows of the cache are list positions, nothing here touches a tensor.

    waiting (first come, first served) --admit--> running (cache row = place in the list) --retire--> finished

A sample is admitted only when its whole budget fits beside those that run, so nothing ever has to be evicted.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from strop.rollout.errors import RequestRefusedError
from strop.rollout.native.memory import RectangleShape
from strop.rollout.native.samples import GrowingGroup, GrowingSample

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class RowMoves:
    """Rows to copy so that the rows in use are compact again."""

    sources: list[int]
    targets: list[int]


class Roster:
    """The groups and samples of the engine."""

    def __init__(self, max_running: int, max_cache_tokens: int, *, shares_prompts: bool = True) -> None:
        """`shares_prompts` says whether a prompt is cached once for its group, or once for each sample."""
        self.max_running = max_running
        self.max_cache_tokens = max_cache_tokens
        self.shares_prompts = shares_prompts
        self.waiting: deque[GrowingSample] = deque()
        self.running: list[GrowingSample] = []
        """Place in the list = row in the cache of own tokens."""
        self.groups: list[GrowingGroup] = []
        """Groups whose prompt is in the cache; place in the list = row in the cache of prompts."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self.waiting and not self.running

    @property
    def has_finished(self) -> bool:
        """Whether a row of the cache can be given up."""
        is_sample_finished = any(sample.finish is not None for sample in self.running)
        return is_sample_finished or any(group.is_finished for group in self.groups)

    def require_fit(self, group: GrowingGroup) -> None:
        """Raises RequestRefusedError where not even one sample of the group would ever be admitted."""
        budget = max(sample.max_new_tokens for sample in group.samples)
        needed = group.prompt_length + budget
        if needed > self.max_cache_tokens:
            raise RequestRefusedError(
                f"a request must fit the cache of {self.max_cache_tokens} tokens, got {group.prompt_length} of the "
                f"prompt and {budget} new ones, together {needed}",
                "Raise rollout.max_cache_tokens or lower rollout.max_new_tokens.",
            )

    def enter(self, group: GrowingGroup) -> None:
        """Puts the unfinished samples of a group in the queue."""
        self.waiting.extend(sample for sample in group.samples if sample.finish is None)

    def admit(self, max_tokens: int) -> list[GrowingSample]:
        """Moves waiting samples to running, in order, as long as they fit; returns them.

        `max_tokens` bounds the tokens that their admission computes; the first is admitted whatever it costs.
        """
        admitted: list[GrowingSample] = []
        num_tokens = 0
        while self.waiting and len(self.running) < self.max_running:
            sample = self.waiting[0]
            is_new_group = sample.group not in self.groups
            is_prompt_computed = is_new_group if self.shares_prompts else _begins_a_row(sample, admitted)
            cost = len(sample.token_ids) + (sample.group.prompt_length if is_prompt_computed else 0)
            if not self._fits(sample) or (admitted and cost and num_tokens + cost > max_tokens):
                break
            self.waiting.popleft()
            self.running.append(sample)
            if is_new_group:
                self.groups.append(sample.group)
            admitted.append(sample)
            num_tokens += cost
        return admitted

    def shapes(self) -> tuple[RectangleShape, RectangleShape]:
        """Returns the cache that is needed now: prompts, and own tokens with room for one more each."""
        prompts = max(group.prompt_length for group in self.groups)
        own = max(len(sample.token_ids) for sample in self.running)
        return RectangleShape(len(self.groups), prompts), RectangleShape(len(self.running), own + 1)

    def group_rows(self) -> list[int]:
        """Returns the prompt row of each running sample."""
        rows = {id(group): row for row, group in enumerate(self.groups)}
        return [rows[id(sample.group)] for sample in self.running]

    def retire(self) -> tuple[RowMoves, RowMoves]:
        """Drops finished samples and groups; returns the moves of prompt rows and of own rows."""
        own = _compact(self.running, [sample.finish is not None for sample in self.running])
        prompts = _compact(self.groups, [group.is_finished for group in self.groups])
        return prompts, own

    def requeue(self) -> None:
        """Puts running samples back to the front of the queue with their tokens: their cache is gone."""
        self.waiting.extendleft(reversed(self.running))
        for group in self.groups:
            group.is_cached = False
            group.first_logits_V = None
        self.running = []
        self.groups = []

    def clear(self) -> None:
        """Forgets everything."""
        self.waiting.clear()
        self.running, self.groups = [], []

    def remove(self, groups: Iterable[GrowingGroup]) -> None:
        """Forgets waiting samples of these groups; their running samples must be finished and retired."""
        gone = {id(group) for group in groups}
        self.waiting = deque(sample for sample in self.waiting if id(sample.group) not in gone)

    def _fits(self, sample: GrowingSample) -> bool:
        if not self.running:
            return True
        if not self.shares_prompts:
            whole = sum(one.group.prompt_length + one.max_new_tokens for one in [*self.running, sample])
            return whole <= self.max_cache_tokens
        group_set = self.groups if sample.group in self.groups else [*self.groups, sample.group]
        prompts = len(group_set) * max(group.prompt_length for group in group_set)
        longest = max(one.max_new_tokens for one in [*self.running, sample])
        return prompts + (len(self.running) + 1) * longest <= self.max_cache_tokens


def _begins_a_row(sample: GrowingSample, admitted: Iterable[GrowingSample]) -> bool:
    """Whether no other sample of its group that has no tokens either is computed with it."""
    return bool(sample.token_ids) or all(one.token_ids or one.group is not sample.group for one in admitted)


def _compact(items: list[Item], is_gone: list[bool]) -> RowMoves:
    """Removes items in place, filling holes from the end."""
    num_left = is_gone.count(False)
    holes = [row for row in range(num_left) if is_gone[row]]
    fillers = [row for row in range(num_left, len(items)) if not is_gone[row]]
    for hole, filler in zip(holes, fillers, strict=True):
        items[hole] = items[filler]
    del items[num_left:]
    return RowMoves(fillers, holes)
