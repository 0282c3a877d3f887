"""Tables of evaluations: scores with standard errors, before and after."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over prompts with its standard error; both are shares between 0 and 1 for an accuracy."""

    mean: float
    standard_error: float
    num_prompts: int

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}% ± {100 * self.standard_error:.1f}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the policy said to one prompt before and after training."""

    prompt: str
    before: str
    after: str


def change(before: Score, after: Score) -> str:
    """Returns the difference in points; its standard error takes both scores as independent."""
    points = 100 * (after.mean - before.mean)
    error = 100 * math.hypot(before.standard_error, after.standard_error)
    return f"{points:+.1f} ± {error:.1f}"


def comparison_table(before: Mapping[str, Score], after: Mapping[str, Score], title: str = "") -> Table:
    """Returns a row for each score that was measured both before and after, in the order of `after`.

    Raises ValueError where there is none.
    """
    names = [name for name in after if name in before]
    if not names:
        raise ValueError(f"before and after must share a score, got {sorted(before)} and {sorted(after)}")
    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("accuracy")
    for column in ("before", "after", "change in points", "prompts"):
        table.add_column(column, justify="right")
    for name in names:
        cells = (str(before[name]), str(after[name]), change(before[name], after[name]), str(after[name].num_prompts))
        table.add_row(Text(name), *cells)
    return table


def answers_table(answers: Sequence[Answer]) -> Table:
    """Returns prompts with the answers before and after, as plain text whatever they hold."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("prompt", "before", "after"):
        table.add_column(column, overflow="fold", ratio=1)
    for answer in answers:
        table.add_row(*(Text(cell.strip() or "(nothing)") for cell in (answer.prompt, answer.before, answer.after)))
    return table


def scores_line(scores: Mapping[str, Score]) -> str:
    """Returns scores as one line: `sampled 3.1% ± 1.5, greedy 12.5% ± 2.9 (128 prompts)`."""
    counts = sorted({score.num_prompts for score in scores.values()})
    prompts = " to ".join(str(count) for count in (counts[0], counts[-1])) if len(counts) > 1 else str(counts[0])
    return ", ".join(f"{name} {score}" for name, score in scores.items()) + f" ({prompts} prompts)"
