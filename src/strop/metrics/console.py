"""What a person sees of a run.

In a terminal a progress display stays at the bottom and lines scroll above it; in a file or a pipe there are plain
lines only, and a heartbeat line whenever nothing was printed for a while.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from strop.metrics.activity import Activity, Detail
from strop.metrics.heartbeat import Heartbeat
from strop.metrics.metric import Metrics, values
from strop.metrics.score import Score
from strop.metrics.settings import ConsoleSettings
from strop.metrics.step_line import heading, step_line
from strop.metrics.table import Answer, answers_table, comparison_table, scores_line
from strop.metrics.timing import PhaseClock

PLAIN_WIDTH = 100
LINES_BETWEEN_HEADINGS = 20


class ActivityColumn(ProgressColumn):
    """Shows in the progress display what the run is doing."""

    def __init__(self, activity: Activity) -> None:
        super().__init__()
        self._activity = activity

    def render(self, task: Task) -> Text:
        """Returns the running phase and what it waits for."""
        return Text(str(self._activity), style="cyan", overflow="ellipsis", no_wrap=True)


class Console:
    """Tells a person how a run goes. One thread calls it; `clock` measures the phases."""

    def __init__(self, settings: ConsoleSettings, *, stream: TextIO | None = None) -> None:
        stream = sys.stdout if stream is None else stream
        self.clock = PhaseClock()
        self._activity = Activity()
        terminal = stream.isatty()
        self._rich = RichConsole(
            file=stream, force_terminal=terminal, width=None if terminal else PLAIN_WIDTH, highlight=False, markup=False
        )
        self._live = terminal and not self._rich.is_dumb_terminal
        self._progress: Progress | None = None
        self._heartbeat = Heartbeat(settings.heartbeat_seconds, self._print_heartbeat)
        self._heading, self._lines_since_heading = "", 0
        if not self._live:
            self._heartbeat.start()

    def run_started(self, lines: Sequence[str], *, total_steps: int, first_step: int = 0) -> None:
        """Prints the head of a run and begins the progress display at `first_step` finished steps."""
        for number, line in enumerate(lines):
            self._print(line, style="bold" if number == 0 else "")
        if self._live:
            self._progress = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TimeRemainingColumn(),
                ActivityColumn(self._activity),
                console=self._rich,
                refresh_per_second=2,
                transient=True,
            )
            self._progress.add_task("steps", total=total_steps, completed=first_step)
            self._progress.start()

    @contextmanager
    def phase(self, name: str, waits_for: Detail = "") -> Iterator[None]:
        """Measures the block as `timing/<name>_seconds` and shows it as what runs.

        `waits_for` is shown beside the name; a function is called from another thread whenever it is shown.
        """
        with self.clock.phase(name), self._activity.phase(name, waits_for):
            yield

    def step(self, step: int, total_steps: int, metrics: Metrics) -> None:
        """Prints the line of a finished step."""
        reduced = values(metrics)
        label, step_width = f"{step}/{total_steps}", max(4, 2 * len(str(total_steps)) + 1)
        self._print_heading_if_due(heading(reduced, step_width))
        self._print(step_line(label, reduced, step_width, self._rich.width if self._live else None))
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=step)

    def evaluation(self, label: str, scores: Mapping[str, Score]) -> None:
        """Prints the scores of an evaluation; `label` says when it was, such as `before training`."""
        self._print(f"evaluation {label}: {scores_line(scores)}", style="bold")

    def comparison(self, before: Mapping[str, Score], after: Mapping[str, Score], title: str = "") -> None:
        """Prints the table of scores before and after training."""
        self._print(comparison_table(before, after, title))

    def answers(self, answers: Sequence[Answer]) -> None:
        """Prints some answers before and after training."""
        self._print(answers_table(answers))

    def info(self, text: str) -> None:
        """Prints a line."""
        self._print(text)

    def warn(self, text: str) -> None:
        """Prints a warning."""
        self._print(f"warning: {text}", style="yellow")

    def close(self) -> None:
        """Ends the progress display and the heartbeat; may be called twice."""
        self._heartbeat.stop()
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _print_heading_if_due(self, text: str) -> None:
        if text != self._heading or self._lines_since_heading >= LINES_BETWEEN_HEADINGS:
            self._print(text, style="dim")
            self._heading, self._lines_since_heading = text, 0
        self._lines_since_heading += 1

    def _print(self, content: str | Table, style: str = "") -> None:
        self._heartbeat.heard()
        self._rich.print(content, style=style or None, soft_wrap=isinstance(content, str))
        self._rich.file.flush()

    def _print_heartbeat(self) -> None:
        self._print(f"... {self._activity}")
