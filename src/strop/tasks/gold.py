"""Rewards are tested before they train: gold answers must score 1, empty answers 0.

    prompts --(evenly spaced)--> gold response and empty response --every reward--> GoldCheck --> GoldReport

A grader of a task that fails its own gold answers would train on noise, so the run refuses. Of a user's function
nobody knows the scale; there it is told when a gold answer earns no more than an empty one, and fewer rows are tried,
since a call may cost much. One that fails in every call is broken, which a few rows show.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from strop.protocols import Task
from strop.records import FinishState, Group, Prompt, RewardPart, Sample
from strop.tasks.grading.grade import GoldError
from strop.tasks.rewards import WeightedReward

MAX_EMPTY_SCORE = 0.05
"""What a scorer that gives parts of a point (some of reasoning_gym's) may give an empty answer."""
NUM_FUNCTION_ROWS = 16
"""Rows on which functions of the user's are tried."""
NUM_ROWS_TO_BREAK = 3
"""A function that failed on so many rows, and on no other, is not tried on more."""
LONG_SECONDS = 5.0
"""A function that needs longer to fail is not tried again: it would hold the start of the run."""
_EMPTY = ""
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class GoldCheck:
    """What one reward gives one row's gold answer, and an empty answer."""

    reward: str
    is_task_grader: bool
    prompt_id: str
    gold_response: str
    gold: RewardPart
    empty: RewardPart
    where: str
    """Where a person finds the row, such as file and line."""

    @property
    def is_broken(self) -> bool:
        """Whether both calls failed."""
        return self.gold.error is not None and self.empty.error is not None

    @property
    def failure(self) -> str | None:
        """Why the row cannot train; None where nothing is wrong, or where a user's function is concerned."""
        if not self.is_task_grader or (self.gold.value == 1 and _is_nothing(self.empty)):
            return None
        return (
            f"reward {self.reward!r} must score a gold answer 1 and an empty one 0, got {_told(self.gold)} and "
            f"{_told(self.empty)} on {self.where} (gold answer {self.gold_response[:80]!r})"
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
            f"{_told(self.empty)} on {self.where}"
        )


@dataclass(frozen=True, slots=True)
class GoldReport:
    """What the rewards say of gold and empty answers of one task."""

    task: str
    checks: tuple[GoldCheck, ...]
    num_rows: int
    """Rows of the task, tested or not."""
    num_without_gold: int
    """Rows without a gold answer, which cannot be tested."""

    @property
    def failures(self) -> list[str]:
        """What is wrong with the task's grader, a text for each row that it fails."""
        return [check.failure for check in self.checks if check.failure is not None]

    @property
    def warnings(self) -> list[str]:
        """What a person should look at."""
        return [check.warning for check in self.checks if check.warning is not None]

    @property
    def broken(self) -> list[str]:
        """Functions of the user's that failed in every call, each with its first error."""
        texts = []
        for name in dict.fromkeys(check.reward for check in self.checks if not check.is_task_grader):
            own = [check for check in self.checks if check.reward == name]
            if all(check.is_broken for check in own):
                calls = f"in all {2 * len(own)} calls of the self-test"
                texts.append(f"reward {name!r} failed {calls}, the first: {own[0].gold.error}")
        return texts

    @property
    def num_graded(self) -> int:
        """Rows that the task's own grader was tried on."""
        return len({check.prompt_id for check in self.checks if check.is_task_grader})

    @property
    def num_judged(self) -> int:
        """Rows that functions of the user's were tried on."""
        return len({check.prompt_id for check in self.checks if not check.is_task_grader})

    @property
    def passed_share(self) -> float:
        """The share of the graded rows that the grader is right about; 1 where none was graded."""
        failed = {check.prompt_id for check in self.checks if check.failure is not None}
        return 1 - len(failed) / self.num_graded if self.num_graded else 1.0

    @property
    def line(self) -> str:
        """What was tested, for a person to read."""
        num_gold = self.num_rows - self.num_without_gold
        if num_gold == 0:
            return (
                f"{self.task} is not self-testable: none of its {self.num_rows} rows has a gold response "
                "(data.gold_response_column may name a column of them)"
            )
        tested = [f"gold and empty answers graded on {self.num_graded} rows"] if self.num_graded else []
        if self.num_judged:
            tested.append(f"shown to your functions on {self.num_judged}")
        text = f"{self.task}: {', '.join(tested)} of {num_gold}"
        if 0 < max(self.num_graded, self.num_judged) < num_gold:
            text += ", evenly spaced"
        if self.num_without_gold:
            text += f"; {self.num_without_gold} more have no gold response and cannot be tested"
        return text


async def score_gold(
    task: Task,
    rewards: Sequence[WeightedReward],
    prompts: Sequence[Prompt],
    *,
    max_rows: int | None = None,
    places: Mapping[str, str] = MappingProxyType({}),
) -> GoldReport:
    """Scores gold and empty answers with every reward, on at most `max_rows` of the prompts, evenly spaced.

    `places` says by prompt id where a person finds the row; one without a place is named by its id.
    """
    wheres = [places.get(prompt.prompt_id, prompt.prompt_id) for prompt in prompts]
    responses = [
        (prompt, _gold_response(task, prompt, where), where) for prompt, where in zip(prompts, wheres, strict=True)
    ]
    known = [(prompt, response, where) for prompt, response, where in responses if response is not None]
    checks = await asyncio.gather(
        *(
            _check_all(reward, evenly_spaced(known, max_rows))
            if reward.is_task_grader
            else _check_function(reward, evenly_spaced(known, NUM_FUNCTION_ROWS))
            for reward in rewards
        )
    )
    flat = tuple(check for own in checks for check in own)
    return GoldReport(task.name, flat, len(prompts), num_without_gold=len(responses) - len(known))


def evenly_spaced(items: Sequence[_Item], max_items: int | None) -> list[_Item]:
    """At most `max_items` of the items, the first and others at equal distances; None takes all."""
    if max_items is None or len(items) <= max_items:
        return list(items)
    return [items[place * len(items) // max_items] for place in range(max_items)]


def _gold_response(task: Task, prompt: Prompt, where: str) -> str | None:
    """The row's gold response; an unreadable one is reported with its row."""
    try:
        return task.render_gold(prompt.columns)
    except GoldError as error:
        raise GoldError(f"{where}: {error}", "Mend or remove the row.") from error


async def _check_all(reward: WeightedReward, rows: Sequence[tuple[Prompt, str, str]]) -> list[GoldCheck]:
    return list(await asyncio.gather(*(_check(reward, *row) for row in rows)))


async def _check_function(reward: WeightedReward, rows: Sequence[tuple[Prompt, str, str]]) -> list[GoldCheck]:
    """Tries the rows one by one until one works or the function has shown that none will, then the rest at once."""
    checks: list[GoldCheck] = []
    for row in rows[:NUM_ROWS_TO_BREAK]:
        checks.append(await _check(reward, *row))
        if not checks[-1].is_broken:
            return checks + await _check_all(reward, rows[len(checks) :])
        if checks[-1].gold.seconds >= LONG_SECONDS:
            break
    return checks


async def _check(reward: WeightedReward, prompt: Prompt, response: str, where: str) -> GoldCheck:
    samples = tuple(Sample(index=index, rows=(), finish=FinishState.STOPPED) for index in range(2))
    gold, empty = await reward.function(Group(prompt, samples), [response, _EMPTY])
    return GoldCheck(reward.name, reward.is_task_grader, prompt.prompt_id, response, gold, empty, where)


def _is_nothing(part: RewardPart) -> bool:
    return part.value is not None and 0 <= part.value <= MAX_EMPTY_SCORE


def _told(part: RewardPart) -> str:
    if part.value is not None:
        return f"{part.value:g}"
    return "no value" if part.error is None else f"an error ({part.error.splitlines()[0]})"
