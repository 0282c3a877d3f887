"""Tables of evaluations: scores with standard errors, before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from strop.metrics.score import Change, Score

_PAIRED = "± is the standard error; that of a change is paired, prompt by prompt"
_UNPAIRED = "± is the standard error; changes between other prompts are not paired"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the policy said to one prompt before and after training."""

    prompt: str
    before: str
    after: str


def comparison_table(before: Mapping[str, Score], after: Mapping[str, Score], title: str = "") -> Table:
    """Returns a row for each score that was measured both before and after, in the order of `after`.

    Raises ValueError where there is none.
    """
    names = [name for name in after if name in before]
    if not names:
        raise ValueError(f"before and after must share a score, got {sorted(before)} and {sorted(after)}")
    changes = {name: Change.between(before[name], after[name]) for name in names}
    caption = _PAIRED if all(change.is_paired for change in changes.values()) else _UNPAIRED
    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.caption, table.caption_justify = caption, "left"
    table.add_column("accuracy")
    for column in ("before", "after", "change in points", "prompts"):
        table.add_column(column, justify="right")
    for name in names:
        cells = (str(before[name]), str(after[name]), str(changes[name]), str(after[name].num_prompts))
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
    """Returns scores as one line: `sampled 3.1% ± 1.5, greedy 12.5% ± 2.9 (128 prompts, ± standard error)`."""
    counts = sorted({score.num_prompts for score in scores.values()})
    prompts = " to ".join(str(count) for count in (counts[0], counts[-1])) if len(counts) > 1 else str(counts[0])
    shown = ", ".join(f"{name} {score}" for name, score in scores.items())
    return f"{shown} ({prompts} prompts, ± standard error)"
