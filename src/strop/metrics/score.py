"""Scores of an evaluation: means over prompts, with how sure they are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over prompts with its standard error; both are shares between 0 and 1 for an accuracy."""

    mean: float
    standard_error: float | None
    """None where a single prompt says nothing about it."""
    num_prompts: int
    per_prompt: Mapping[str, float] = field(default_factory=dict)
    """The value of each prompt by its id; empty where they are not known."""

    @classmethod
    def of(cls, values: Sequence[tuple[str, float]]) -> "Score":
        """The score of prompts, each its id and value; raises ValueError where there is none."""
        numbers = [value for _, value in values]
        if not numbers:
            raise ValueError("a score needs at least one prompt, got none")
        error = standard_error(numbers) if len(numbers) > 1 else None
        by_id = dict(values)
        return cls(sum(numbers) / len(numbers), error, len(numbers), by_id if len(by_id) == len(numbers) else {})

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}%{_error(self.standard_error)}"


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of two scores, as a share, and its standard error."""

    difference: float
    standard_error: float | None
    is_paired: bool
    """Whether the error is that of the differences prompt by prompt, or takes both scores as independent."""

    @classmethod
    def between(cls, before: Score, after: Score) -> "Change":
        """Pairs the prompts where both scores have the same ones."""
        if before.per_prompt and before.per_prompt.keys() == after.per_prompt.keys():
            differences = [value - before.per_prompt[name] for name, value in after.per_prompt.items()]
            error = standard_error(differences) if len(differences) > 1 else None
            return cls(after.mean - before.mean, error, is_paired=True)
        known = before.standard_error is not None and after.standard_error is not None
        error = math.hypot(before.standard_error or 0.0, after.standard_error or 0.0) if known else None
        return cls(after.mean - before.mean, error, is_paired=False)

    def __str__(self) -> str:
        return f"{100 * self.difference:+.1f}{_error(self.standard_error)}"


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean of two or more independent values, from the n-1 standard deviation."""
    average = sum(values) / len(values)
    variance = sum((value - average) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def _error(error: float | None) -> str:
    return "" if error is None else f" ± {100 * error:.1f}"
