"""Finds samples in a store by step, prompt, reward and finish state."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from strop.metrics.samples.records import GroupRecord, SampleRecord
from strop.metrics.samples.store import SampleStore


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """What is looked for; None and False ask for nothing. All conditions must hold.

    A sample without a reward meets no bound on the reward: look for it with `invalid`.
    """

    step: int | None = None
    prompt_id: str | None = None
    minimum_reward: float | None = None
    maximum_reward: float | None = None
    finish: str | None = None
    """stopped, length, aborted or failed."""
    invalid: bool = False
    """Only samples without a reward."""
    limit: int | None = None
    """At most this many."""

    def matches(self, group: GroupRecord, sample: SampleRecord) -> bool:
        """Whether a sample is looked for, whatever its step."""
        return (
            self.prompt_id in (None, group.prompt_id)
            and self.finish in (None, sample.finish)
            and not (self.invalid and sample.reward is not None)
            and self._reward_matches(sample.reward)
        )

    def _reward_matches(self, reward: float | None) -> bool:
        if self.minimum_reward is None and self.maximum_reward is None:
            return True
        if reward is None:
            return False
        above = self.minimum_reward is None or reward >= self.minimum_reward
        return above and (self.maximum_reward is None or reward <= self.maximum_reward)


@dataclass(frozen=True, slots=True)
class FoundSample:
    """A sample with the group and the step that it belongs to."""

    step: int
    group: GroupRecord
    sample: SampleRecord


def find_samples(store: SampleStore, query: SampleQuery) -> Iterator[FoundSample]:
    """Yields the samples in order of step, group and index, one file in memory at a time.

    Raises DataError where a step is asked for that is not kept.
    """
    steps = store.steps() if query.step is None else [query.step]
    found = (
        FoundSample(step, group, sample)
        for step in steps
        for group in store.read(step)
        for sample in group.samples
        if query.matches(group, sample)
    )
    return islice(found, query.limit)
