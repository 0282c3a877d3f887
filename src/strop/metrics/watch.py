"""Warnings in plain language about a run that learns nothing, or is about to break.

A check is a pure function of the history of a run: the reduced metrics of its steps, the newest last. It returns
a sentence that says what is seen and what to do, or None.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

Values = Mapping[str, float | None]
History = Sequence[Values]
Check = Callable[[History], str | None]

STEPS_WITHOUT_SIGNAL = 5
STEPS_WITHOUT_REWARD = 5
EXPLODING_FACTOR = 20.0
HISTORY_STEPS = 50


def all_truncated(history: History) -> str | None:
    """Warns where every sample of the newest step was cut by its token budget."""
    share = history[-1].get("samples/truncated_share")
    if share is None or share < 1:
        return None
    length = history[-1].get("length/max")
    budget = "" if length is None else f" of {length:.0f} tokens"
    return (
        f"every sample was cut by its token budget{budget}, so no answer was finished: raise "
        "rollout.max_new_tokens, or ask for shorter answers in the instruction"
    )


def every_reward_invalid(history: History) -> str | None:
    """Warns where no sample of the newest step has a reward."""
    if "reward/mean" not in history[-1] or history[-1]["reward/mean"] is not None:
        return None
    return "no sample of this step has a valid reward, so nothing can be learned from it"


def reward_never_above_zero(history: History) -> str | None:
    """Warns where every reward of the last steps was exactly 0."""
    if len(history) < STEPS_WITHOUT_REWARD or not all(_all_zero(step) for step in history):
        return None
    return (
        f"every reward of the last {len(history)} steps was 0: the task is too hard for this model, or the answers "
        "are not in the form that the reward looks for"
    )


def no_signal(history: History) -> str | None:
    """Warns where for some steps the rewards within every group were equal, so that no gradient remains."""
    recent = history[-STEPS_WITHOUT_SIGNAL:]
    shares = [step.get("groups/zero_signal_share") for step in recent]
    if len(recent) < STEPS_WITHOUT_SIGNAL or any(share is None or share < 1 for share in shares):
        return None
    if _all_zero(history[-1]):
        return None
    solved = history[-1].get("reward/solved_share") or 0.0
    reason = "too easy: most samples are solved" if solved > 0.5 else "too hard, or the reward too coarse"
    return (
        f"for {len(recent)} steps the rewards within each group were equal, so nothing is learned; the task is "
        f"{reason}. Choose other prompts, a larger rollout.group_size, or dynamic sampling"
    )


def gradient_exploding(history: History) -> str | None:
    """Warns where the newest gradient norm is not finite or far above those before it."""
    norms = [norm for step in history if (norm := step.get("update/gradient_norm")) is not None]
    if not norms or history[-1].get("update/gradient_norm") is None:
        return None
    newest, earlier = norms[-1], [norm for norm in norms[:-1] if math.isfinite(norm)]
    if not math.isfinite(newest):
        return "the gradient is not finite: lower training.learning_rate, or train in float32"
    if len(earlier) < 5 or newest <= EXPLODING_FACTOR * median(earlier) or newest < 1:
        return None
    return (
        f"the gradient norm rose to {newest:.3g}, {newest / max(median(earlier), 1e-12):.0f} times its median: "
        "lower training.learning_rate or training.max_gradient_norm"
    )


def _all_zero(step: Values) -> bool:
    return step.get("reward/mean") == 0 and step.get("reward/std") in (0, None)


CHECKS: dict[str, Check] = {
    "all_truncated": all_truncated,
    "every_reward_invalid": every_reward_invalid,
    "reward_never_above_zero": reward_never_above_zero,
    "no_signal": no_signal,
    "gradient_exploding": gradient_exploding,
}

LOOK_AT_SAMPLES = ("every_reward_invalid", "reward_never_above_zero", "all_truncated")
"""Warnings whose cause is seen in the samples."""


class Watch:
    """Runs the checks on every step and gives each warning once in a run."""

    def __init__(self, run_folder: str) -> None:
        self._run_folder = run_folder
        self._history: list[Values] = []
        self._given: set[str] = set()

    def observe(self, values: Values, first_error: str | None = None) -> list[str]:
        """Returns the new warnings of a step.

        `values` are its reduced metrics; `first_error` is the message of the first reward error of the step.
        """
        self._history = [*self._history, values][-HISTORY_STEPS:]
        new = {name: text for name, check in CHECKS.items() if (text := check(self._history)) is not None}
        warnings = [self._worded(name, text, first_error) for name, text in new.items() if name not in self._given]
        self._given |= set(new)
        return warnings

    def _worded(self, name: str, text: str, first_error: str | None) -> str:
        if name == "every_reward_invalid" and first_error:
            text = f"{text}; the first error: {first_error.strip()}"
        if name in LOOK_AT_SAMPLES:
            text = f"{text}. See them: strop samples {self._run_folder}"
        return text
