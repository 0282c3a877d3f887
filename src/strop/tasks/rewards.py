"""Rewards of a run: built from the config, called for a group, added up.

    Group --(sampled tokens -> text)--> every reward function, concurrently --> parts --(weighted sum)--> Group

A sample's reward is the weighted sum of its parts; it is None, invalid, where a part that bears weight is. Samples
that failed or were aborted are not judged: nobody knows how they would have ended.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from strop.config.rewards import RewardConfig
from strop.data.errors import SettingError
from strop.protocols import Renderer, RewardFunction
from strop.records import FinishState, Group, RewardPart, Sample
from strop.tasks.function_reward import FunctionReward
from strop.tasks.isolation.limits import CallLimits, default_processes
from strop.tasks.model_host import ModelHost
from strop.tasks.question import QuestionTask
from strop.tasks.returned import LARGEST_REWARD


class ColumnReward(RewardFunction, Protocol):
    """A reward function that knows which columns it reads."""

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises SettingError or KeyError, with the columns found, where one that it needs is not in every row."""


@dataclass(frozen=True)
class WeightedReward:
    """A reward function with its name in metrics and its weight in the sum."""

    function: ColumnReward
    name: str
    weight: float = 1.0
    is_task_grader: bool = False
    """Whether gold answers must score 1 under it."""


def build_rewards(
    configs: Sequence[RewardConfig], task: QuestionTask, host: ModelHost | None = None
) -> tuple[WeightedReward, ...]:
    """Builds the rewards of a run; `host` has the models that they ask, by default one of its own in main memory.

    Raises SettingError where a function cannot be loaded or called, where `task` is asked of a task without a grader,
    and where two rewards share a name; ModelError where a model cannot be used.
    """
    host = host or ModelHost()
    rewards = tuple(reward for config in configs for reward in _build(config, task, host))
    names = [reward.name for reward in rewards]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SettingError(f"rewards must have names of their own, got {doubled[0]!r} twice: set rewards.name")
    return rewards


def check_rewards(rewards: Sequence[WeightedReward], columns: frozenset[str]) -> None:
    """Raises SettingError or KeyError, before training, where a reward needs a column that not every row has."""
    for reward in rewards:
        reward.function.check_columns(columns)


def combine_rewards(parts: Mapping[str, RewardPart]) -> float | None:
    """The weighted sum of the parts; None where one that bears weight is invalid, or where there are none.

    None too where the sum is beyond float32, in which advantages are.
    """
    bearing = [part for part in parts.values() if part.weight != 0]
    values = [part.weight * part.value for part in bearing if part.value is not None]
    if not bearing or len(values) < len(bearing):
        return None
    total = sum(values)
    return total if abs(total) <= LARGEST_REWARD else None  # not a number is not smaller either


async def reward_group(
    group: Group,
    rewards: Sequence[WeightedReward],
    renderer: Renderer,
    stop_token_ids: frozenset[int] = frozenset(),
) -> Group:
    """Returns the group with every sample that ended by itself or by its budget rewarded, parts kept.

    `stop_token_ids` are left out of the text where a stopped sample ends with one; special tokens always are.
    """
    judged = [sample for sample in group.samples if sample.finish in (FinishState.STOPPED, FinishState.LENGTH)]
    if not judged or not rewards:
        return group
    texts = [completion_text(sample, renderer, stop_token_ids) for sample in judged]
    subgroup = group.with_samples(judged)
    columns = await asyncio.gather(*(_parts(reward, subgroup, texts) for reward in rewards))
    names = [reward.name for reward in rewards]
    rewarded = {
        sample.index: _rewarded(sample, dict(zip(names, parts, strict=True)))
        for sample, parts in zip(judged, zip(*columns, strict=True), strict=True)
    }
    return group.with_samples([rewarded.get(sample.index, sample) for sample in group.samples])


def completion_text(sample: Sample, renderer: Renderer, stop_token_ids: frozenset[int] = frozenset()) -> str:
    """The text of the last span of sampled tokens, without the stop token that ended it."""
    row = sample.rows[-1]
    sampled = np.flatnonzero(row.loss_mask)
    if len(sampled) == 0:
        return ""
    stop = int(sampled[-1]) + 1
    unsampled = np.flatnonzero(~row.loss_mask[:stop])
    start = int(unsampled[-1]) + 1
    if sample.finish is FinishState.STOPPED and int(row.token_ids[stop - 1]) in stop_token_ids:
        stop -= 1
    return renderer.decode(row.token_ids[start:stop])


def _build(config: RewardConfig, task: QuestionTask, host: ModelHost) -> list[WeightedReward]:
    if config.model is not None:
        return [_weighted(host.model_reward(config.own_name, config.model), config)]
    if config.judge is not None:
        return [_weighted(host.judge_reward(config.own_name, config.judge, config.timeout_seconds), config)]
    if config.function is None:
        raise SettingError("a reward must have a function, a model or a judge, got none")
    if config.function == "task":
        return _graders(config, task)
    limits = _limits(config, num_processes=1)
    return [
        _weighted(FunctionReward(config.function, name=config.name, arguments=config.arguments, limits=limits), config)
    ]


def _weighted(reward: ColumnReward, config: RewardConfig) -> WeightedReward:
    return WeightedReward(reward, reward.name, config.weight)


def _graders(config: RewardConfig, task: QuestionTask) -> list[WeightedReward]:
    if not task.rewards:
        raise SettingError(
            f"rewards.function must be a function of yours (`my_file.py:name`), since the task {task.name!r} has no "
            "grader, got 'task'"
        )
    limits = _limits(config, num_processes=default_processes())
    graders = [reward.configured(config.arguments, limits) for reward in task.rewards]
    for grader in graders:
        grader.warm()
    return [
        WeightedReward(grader, config.name or grader.name, config.weight, is_task_grader=True) for grader in graders
    ]


def _limits(config: RewardConfig, *, num_processes: int) -> CallLimits:
    memory_bytes = int(config.memory_gib * 2**30)
    return CallLimits(config.timeout_seconds, memory_bytes, config.processes or num_processes)


async def _parts(reward: WeightedReward, group: Group, texts: Sequence[str]) -> list[RewardPart]:
    parts = await reward.function(group, texts)
    if len(parts) != len(texts):
        raise SettingError(f"reward {reward.name!r} must return one part a sample ({len(texts)}), got {len(parts)}")
    return [replace(part, weight=reward.weight) for part in parts]


def _rewarded(sample: Sample, parts: dict[str, RewardPart]) -> Sample:
    reward = combine_rewards(parts)
    return replace(sample, reward=reward, reward_parts=parts if reward is not None else _with_reason(parts))


def _with_reason(parts: dict[str, RewardPart]) -> dict[str, RewardPart]:
    """The parts of a sample without a reward; where each has a value and the sum is too large, the largest says so."""
    bearing = {name: part for name, part in parts.items() if part.weight != 0}
    sizes = {name: abs(part.weight * part.value) for name, part in bearing.items() if part.value is not None}
    if not bearing or len(sizes) < len(bearing):
        return parts
    name = max(sizes, key=lambda name: sizes[name])
    error = (
        f"reward {name!r}: the weighted sum of all rewards must be at most {LARGEST_REWARD:.2g} in size, got "
        f"{' + '.join(f'{part.weight:g} x {part.value:g}' for part in bearing.values())}"
    )
    return {**parts, name: replace(parts[name], value=None, error=error)}
