"""Rewards are tested before they train: gold answers must score 1, empty answers 0.

A grader of a task that fails its own gold answers would train on noise, so the run refuses. Of a user's function
nobody knows the scale; there it is told when a gold answer earns no more than an empty one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from strop.protocols import Task
from strop.records import FinishState, Group, Prompt, RewardPart, Sample
from strop.tasks.grading.grade import GoldError
from strop.tasks.rewards import WeightedReward

_EMPTY = ""


@dataclass(frozen=True, slots=True)
class GoldCheck:
    """What one reward gives one row's gold answer, and an empty answer."""

    reward: str
    is_task_grader: bool
    prompt_id: str
    gold_response: str
    gold: RewardPart
    empty: RewardPart

    @property
    def failure(self) -> str | None:
        """Why the run must not start; None where nothing is wrong, or where a user's function is concerned."""
        if not self.is_task_grader or (self.gold.value == 1 and self.empty.value == 0):
            return None
        return (
            f"reward {self.reward!r} must score a gold answer 1 and an empty one 0, got {_told(self.gold)} and "
            f"{_told(self.empty)} on {self.prompt_id} (gold answer {self.gold_response[:80]!r})"
        )

    @property
    def warning(self) -> str | None:
        """What a person should look at in a function of theirs; None where nothing is odd."""
        if self.is_task_grader:
            return None
        gold, empty = self.gold.value, self.empty.value
        if gold is not None and (empty is None or gold > empty) and self.empty.error is None:
            return None
        return (
            f"reward {self.reward!r} should give a gold answer more than an empty one, got {_told(self.gold)} and "
            f"{_told(self.empty)} on {self.prompt_id}"
        )


@dataclass(frozen=True, slots=True)
class GoldReport:
    """What the rewards say of gold and empty answers."""

    checks: tuple[GoldCheck, ...]
    num_without_gold: int
    """Rows without a gold answer, which cannot be checked."""

    @property
    def failures(self) -> list[str]:
        """Reasons to refuse the run."""
        return [check.failure for check in self.checks if check.failure is not None]

    @property
    def warnings(self) -> list[str]:
        """What a person should look at."""
        return [check.warning for check in self.checks if check.warning is not None]


async def score_gold(task: Task, rewards: Sequence[WeightedReward], prompts: Sequence[Prompt]) -> GoldReport:
    """Scores the gold answer of every prompt, and an empty answer, with every reward."""
    responses = [(prompt, _gold_response(task, prompt)) for prompt in prompts]
    known = [(prompt, response) for prompt, response in responses if response is not None]
    checks = await asyncio.gather(
        *(_check(reward, prompt, response) for prompt, response in known for reward in rewards)
    )
    return GoldReport(tuple(checks), num_without_gold=len(responses) - len(known))


def _gold_response(task: Task, prompt: Prompt) -> str | None:
    """The row's gold response; an unreadable one is reported with its row."""
    try:
        return task.render_gold(prompt.columns)
    except GoldError as error:
        raise GoldError(f"{prompt.prompt_id}: {error}", "Mend or remove the row.") from error


async def _check(reward: WeightedReward, prompt: Prompt, response: str) -> GoldCheck:
    samples = tuple(Sample(index=index, rows=(), finish=FinishState.STOPPED) for index in range(2))
    gold, empty = await reward.function(Group(prompt, samples), [response, _EMPTY])
    return GoldCheck(reward.name, reward.is_task_grader, prompt.prompt_id, response, gold, empty)


def _told(part: RewardPart) -> str:
    if part.value is not None:
        return f"{part.value:g}"
    return "no value" if part.error is None else f"an error ({part.error.splitlines()[0]})"
