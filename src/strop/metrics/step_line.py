"""The line that a person reads for each step: columns under a heading, the bottleneck named last.

Loss is not among them where text is sampled: in policy-gradient training it says nothing about progress. Where text is
given it is what a run lowers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Values = Mapping[str, float | None]
"""Reduced metrics by name; None where nothing was measured."""

PHASES = ("rollout", "reward", "reference", "update", "publish", "checkpoint", "eval")
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the line."""

    heading: str
    width: int
    cell: Callable[[Values], str]
    shown: Callable[[Values], bool] = lambda values: True


def percent(name: str) -> Callable[[Values], str]:
    """Returns a cell that shows a share as whole per cent."""
    return lambda values: _formatted(values.get(name), lambda value: f"{100 * value:.0f}%")


def short(name: str) -> Callable[[Values], str]:
    """Returns a cell of at most six characters: three significant digits, or one and the power of ten."""
    return lambda values: _formatted(
        values.get(name), lambda value: f"{value:.3g}" if value == 0 or 0.01 <= abs(value) < 1000 else f"{value:.0e}"
    )


def kl_cell(values: Values) -> str:
    """Returns the divergence from the reference with four decimals."""
    return _formatted(values.get("kl/reference"), lambda value: f"{value:.4f}" if abs(value) < 10 else f"{value:.0e}")


def _formatted(value: float | None, form: Callable[[float], str]) -> str:
    return ABSENT if value is None else form(value)


def reward_cell(values: Values) -> str:
    """Returns the mean reward, and in brackets its standard deviation over the samples."""
    mean, spread = values.get("reward/mean"), values.get("reward/std")
    if mean is None:
        return "none valid" if "reward/mean" in values else ABSENT
    return f"{mean:.2f}" if spread is None else f"{mean:.2f}({spread:.2f})"


def speed_cell(values: Values) -> str:
    """Returns sampled tokens per second of the whole step; where none is sampled, those that were computed."""
    tokens = values.get("tokens/sampled", values.get("tokens/computed"))
    seconds = values.get("timing/step_seconds")
    if tokens is None or not seconds:
        return ABSENT
    speed = tokens / seconds
    return f"{speed:.0f}" if speed < 10_000 else f"{speed / 1000:.0f}k"


def _measured(name: str) -> Callable[[Values], bool]:
    return lambda values: values.get(name) is not None


def _is_rewarded(values: Values) -> bool:
    """Every run has rewards, but one that learns from a teacher or from given text alone."""
    return "reward/mean" in values or ("distillation/divergence" not in values and _is_sampled(values))


def _is_sampled(values: Values) -> bool:
    return "offline/loss" not in values


COLUMNS = (
    Column("reward(std)", 11, reward_cell, _is_rewarded),
    Column("solved", 6, percent("reward/solved_share"), _is_rewarded),
    Column("no signal", 9, percent("groups/zero_signal_share"), _is_rewarded),
    Column("divergence", 10, short("distillation/divergence"), _measured("distillation/divergence")),
    Column("rounds", 6, short("groups/sampling_rounds"), _measured("groups/sampling_rounds")),
    Column("loss", 7, short("offline/loss"), _measured("offline/loss")),
    Column("margin", 7, short("rewards/margin"), lambda values: "rewards/margin" in values),
    Column("right", 5, percent("rewards/accuracy"), _measured("rewards/accuracy")),
    Column("cut", 4, percent("samples/truncated_share"), _is_sampled),
    Column("err", 4, percent("samples/error_share"), _is_sampled),
    Column("grad", 6, short("update/gradient_norm")),
    Column("kl", 7, kl_cell, _measured("kl/reference")),
    Column("tok/s", 5, speed_cell),
)
SEPARATOR = " "


def heading(values: Values, step_width: int) -> str:
    """Returns the heading over lines that show what `values` holds."""
    cells = ["step".rjust(step_width)]
    cells += [column.heading.rjust(column.width) for column in COLUMNS if column.shown(values)]
    return SEPARATOR.join([*cells, " seconds: longest phase first"])


def step_line(step_label: str, values: Values, step_width: int, width: int | None = None) -> str:
    """Returns the line of a step; the shortest phases give way to `width` characters."""
    cells = [step_label.rjust(step_width)]
    cells += [column.cell(values).rjust(column.width) for column in COLUMNS if column.shown(values)]
    line = SEPARATOR.join(cells) + "  "
    return line + time_cell(values, None if width is None else width - len(line))


def phase_seconds(values: Values) -> dict[str, float]:
    """Returns the seconds of each phase that was measured, the longest first; time in no phase is "other"."""
    measured = {phase: values.get(f"timing/{phase}_seconds") for phase in PHASES}
    seconds = {phase: value for phase, value in measured.items() if value is not None}
    step_seconds = values.get("timing/step_seconds")
    if step_seconds is not None:
        seconds["other"] = max(0.0, step_seconds - sum(seconds.values()))
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def time_cell(values: Values, width: int | None = None) -> str:
    """Returns the seconds of the step and of its phases, the bottleneck first: `4.1: rollout 2.2, update 1.6`."""
    total = values.get("timing/step_seconds")
    if total is None:
        return ABSENT
    shown = [f"{phase} {seconds:.1f}" for phase, seconds in phase_seconds(values).items() if seconds >= 0.05]
    cell = f"{total:.1f}: " + ", ".join(shown)
    while width is not None and len(cell) > width and len(shown) > 1:
        shown.pop()
        cell = f"{total:.1f}: " + ", ".join(shown) + " .."
    return cell
