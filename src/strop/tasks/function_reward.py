"""A Python function of the user's as a reward function.

Blocking functions are loaded and called in a child process (`isolation`): one that hangs, crashes or takes too much
memory costs the samples of that call, and the process is replaced. With one process, calls come one at a time and
the module has one state, which lives in the child; it starts anew where the process had to be replaced. Async
functions are awaited in this process and overlap: they wait for others and cannot be killed. Their time is bounded
where they await; one that blocks blocks the run.

Whatever goes wrong in a call makes its samples invalid, with the reason.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any

from strop.records import Group, RewardPart, Sample
from strop.tasks.awaited import outcome_of
from strop.tasks.call_plan import CallPlan
from strop.tasks.isolation.lane import LOAD_SECONDS
from strop.tasks.isolation.limits import CallLimits
from strop.tasks.isolation.outcome import Outcome
from strop.tasks.isolation.pool import Pool
from strop.tasks.load_function import FunctionError, absolute_location, load_function
from strop.tasks.parts import lost_part, part_of, place_of
from strop.tasks.user_function import calling, describing

_KINDS = {
    kind.name: kind
    for kind in (
        Parameter.POSITIONAL_ONLY,
        Parameter.POSITIONAL_OR_KEYWORD,
        Parameter.VAR_POSITIONAL,
        Parameter.KEYWORD_ONLY,
        Parameter.VAR_KEYWORD,
    )
}


class FunctionReward:
    """Judges samples by a Python function, per sample or per group as its signature asks; implements `RewardFunction`.

    Raises FunctionError where the function cannot be loaded, SettingError where its signature cannot be called (see
    `CallPlan`).
    """

    def __init__(
        self,
        location: str,
        *,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        limits: CallLimits = CallLimits(),  # noqa: B008 - frozen
    ) -> None:
        location = absolute_location(location)
        self.name = name or location.rpartition(":")[2]
        self._limits = limits
        self._pool = Pool(num_processes=limits.num_processes, memory_bytes=limits.memory_bytes)
        facts = _described(self._pool, location)
        self._plan = CallPlan.read(facts.parameters, self.name, arguments or {})
        self._calling = partial(calling, location, facts.digest)
        self._awaited = None
        if facts.is_async:
            self._pool.close()
            self._awaited = load_function(location)

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises ValueError where a required argument of the function is no column of every row."""
        self._plan.check_columns(columns)

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        """Returns one part a sample, in order."""
        if self._plan.per_group:
            [outcome] = await self._call([self._plan.group_arguments(group, completions)], len(group.samples))
            return [self._part(group, sample, outcome, place) for place, sample in enumerate(group.samples)]
        pairs = zip(group.samples, completions, strict=True)
        calls = [self._plan.sample_arguments(group, sample, completion) for sample, completion in pairs]
        outcomes = await self._call(calls, None)
        return [self._part(group, sample, outcome, 0) for sample, outcome in zip(group.samples, outcomes, strict=True)]

    async def _call(self, calls: list[dict[str, Any]], num_samples: int | None) -> list[Outcome]:
        """Calls the function with each of the arguments; what it raises is data."""
        seconds = self._limits.timeout_seconds
        if self._awaited is not None:
            awaited = (outcome_of(self._awaited, arguments, num_samples, seconds) for arguments in calls)
            return await asyncio.gather(*awaited)
        both = [(arguments, num_samples) for arguments in calls]
        return await self._pool.run(self._calling, both, timeout_seconds=seconds)

    def _part(self, group: Group, sample: Sample, outcome: Outcome, number: int) -> RewardPart:
        place = place_of(self.name, group.prompt.prompt_id, sample.index)
        if outcome.error is not None:
            return lost_part(outcome.error, place, outcome.seconds)
        value, problem = outcome.value[number]
        return part_of((value, problem), place, outcome.seconds)


@dataclass(frozen=True)
class _Facts:
    parameters: list[Parameter]
    is_async: bool
    digest: str | None


def _described(pool: Pool, location: str) -> _Facts:
    """Loads the function in the first child and reads its signature; raises FunctionError where that fails."""
    job = pool.submit(partial(describing, location), [()], timeout_seconds=LOAD_SECONDS)
    [outcome] = job.result()
    problem = outcome.error if outcome.value is None else outcome.value["problem"]
    if problem is not None:
        pool.close()
        raise FunctionError(problem if outcome.value is not None else f"reward {location} cannot be loaded: {problem}")
    facts = outcome.value
    parameters = [
        Parameter(name, _KINDS[kind], default=None if has_default else Parameter.empty)
        for name, kind, has_default in facts["parameters"]
    ]
    return _Facts(parameters, facts["is_async"], facts["digest"])
