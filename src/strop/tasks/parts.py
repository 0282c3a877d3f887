"""What a reward function returned becomes a part: a number, "invalid" without a reason, or a failure with one.

A failure is data. It is never an exception that ends a run, and never a 0 that trains on a mistake.
"""

import math
import numbers
import traceback
from typing import Any

import numpy as np

from strop.records import RewardPart

LARGEST_REWARD = float(np.finfo(np.float32).max)
"""Advantages are float32."""


def part_of(returned: Any, place: str) -> RewardPart:
    """The part of one returned value: None is invalid, what is no number that float32 can hold is a failure.

    bool and numpy scalars are numbers. `place` names function, prompt and sample in the error.
    """
    if returned is None:
        return RewardPart(value=None)
    if not isinstance(returned, (numbers.Real, np.bool_)):
        return RewardPart(
            None, error=f"{place}: must return a number or None, got {type(returned).__name__} {returned!r}"
        )
    try:
        value = float(returned)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        return RewardPart(None, error=f"{place}: must return a finite number, got {value}")
    if abs(value) > LARGEST_REWARD:
        return RewardPart(None, error=f"{place}: must return a number of at most {LARGEST_REWARD:.2g}, got {value}")
    return RewardPart(value)


def failed_part(error: BaseException, place: str) -> RewardPart:
    """The part of a call that raised: its error holds the place, the exception and the traceback."""
    trace = "".join(traceback.format_exception(error))
    return RewardPart(None, error=f"{place}: {type(error).__name__}: {error}\n{trace}")


def place_of(function: str, prompt_id: str, sample_index: int) -> str:
    """How errors name a judged sample."""
    return f"reward {function!r}, prompt {prompt_id}, sample {sample_index}"
