"""What a reward function returned, as JSON data: a number, None, or what is wrong with it.

Read in the child that called the function, so that nothing of the user's has to be understood by the parent.
"""

import math
import numbers
import sys
from typing import Any

LARGEST_REWARD = 3.4028234663852886e38
"""Advantages are float32."""
_MOST_CHARACTERS = 200

Returned = tuple[float | None, str | None]
"""A value and the problem with it. Neither: the function returned None."""


def read_number(returned: Any) -> Returned:
    """Reads one returned value; bool and numpy scalars are numbers, what float32 cannot hold is a problem."""
    if returned is None:
        return None, None
    if not isinstance(returned, numbers.Real) and not _is_numpy(returned, "bool_"):
        return None, f"must return a number or None, got {_shown(returned)}"
    try:
        value = float(returned)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        return None, f"must return a finite number, got {value}"
    if abs(value) > LARGEST_REWARD:
        return None, f"must return a number of at most {LARGEST_REWARD:.2g}, got {value}"
    return value, None


def read_list(returned: Any, num_samples: int) -> list[Returned]:
    """Reads what a per-group function returned; where it is not one value a sample, that is everybody's problem."""
    if not isinstance(returned, (list, tuple)) and not _is_numpy(returned, "ndarray"):
        problem = f"must return a list with one reward a sample, got {_shown(returned)}"
    elif getattr(returned, "shape", None) == ():
        problem = f"must return a list with one reward a sample, got a single number, {_shown(returned)}"
    elif len(returned) != num_samples:
        problem = f"must return one reward a sample ({num_samples}), got {len(returned)}"
    else:
        return [read_number(value) for value in returned]
    return [(None, problem)] * num_samples


def _is_numpy(value: Any, kind: str) -> bool:
    """Whether it is of a numpy type; numpy is not imported for it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, kind))


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {repr(value)[:_MOST_CHARACTERS]}"
