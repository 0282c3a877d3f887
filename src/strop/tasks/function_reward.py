"""A Python function of the user's as a reward function.

Async functions are awaited and overlap; blocking ones run one call at a time in a worker thread, so that the event
loop goes on. Whatever goes wrong in a call makes its samples invalid, with the reason.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from strop.records import Group, RewardPart, Sample
from strop.tasks.call_plan import CallPlan
from strop.tasks.parts import failed_part, part_of, place_of
from strop.tasks.worker import BlockingWorker


class FunctionReward:
    """Judges samples by a Python function, per sample or per group as its signature asks; implements `RewardFunction`.

    `timeout_seconds` bounds one call. Raises ValueError where the signature cannot be called (see `CallPlan`).
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        self.name = name
        self._function = function
        self._plan = CallPlan.read(function, name, arguments or {})
        self._timeout_seconds = timeout_seconds
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            type(function).__call__  # an object with an async __call__
        )
        self._worker = BlockingWorker(f"reward {name!r}", timeout_seconds)

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises ValueError where a required argument of the function is no column of every row."""
        self._plan.check_columns(columns)

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        """Returns one part a sample, in order."""
        if self._plan.per_group:
            return await self._judge_group(group, completions)
        pairs = zip(group.samples, completions, strict=True)
        return await asyncio.gather(*(self._judge_sample(group, sample, text) for sample, text in pairs))

    async def _judge_sample(self, group: Group, sample: Sample, completion: str) -> RewardPart:
        place = self._place(group, sample)
        try:
            returned = await self._call(self._plan.sample_arguments(group, sample, completion))
        except Exception as error:  # noqa: BLE001 - the boundary where a failed call becomes data
            return failed_part(error, place)
        return part_of(returned, place)

    async def _judge_group(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        try:
            returned = await self._call(self._plan.group_arguments(group, completions))
        except Exception as error:  # noqa: BLE001 - the boundary where a failed call becomes data
            return [failed_part(error, self._place(group, sample)) for sample in group.samples]
        problem = _shape_problem(returned, len(group.samples))
        if problem is not None:
            return [RewardPart(None, error=f"{self._place(group, sample)}: {problem}") for sample in group.samples]
        pairs = zip(group.samples, returned, strict=True)
        return [part_of(value, self._place(group, sample)) for sample, value in pairs]

    async def _call(self, arguments: dict[str, Any]) -> Any:
        if not self._is_async:
            return await self._worker.run(partial(self._function, **arguments))
        try:
            return await asyncio.wait_for(self._function(**arguments), self._timeout_seconds)
        except TimeoutError as error:
            raise TimeoutError(
                f"reward {self.name!r} must return within {self._timeout_seconds:g} seconds, and did not"
            ) from error

    def _place(self, group: Group, sample: Sample) -> str:
        return place_of(self.name, group.prompt.prompt_id, sample.index)


def _shape_problem(returned: Any, num_samples: int) -> str | None:
    """Why what a per-group function returned is not one value a sample; None where it is."""
    if not isinstance(returned, (list, tuple, np.ndarray)):
        return f"must return a list with one reward a sample, got {type(returned).__name__} {returned!r}"
    if len(returned) != num_samples:
        return f"must return one reward a sample ({num_samples}), got {len(returned)}"
    return None
