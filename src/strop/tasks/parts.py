"""What a reward function returned becomes a part: a number, "invalid" without a reason, or a failure with one.

A failure is data. It is never an exception that ends a run, and never a 0 that trains on a mistake.
"""

from strop.records import RewardPart
from strop.tasks.isolation.told import told
from strop.tasks.returned import Returned


def part_of(returned: Returned, place: str, seconds: float = 0.0) -> RewardPart:
    """The part of one returned value; `place` names function, prompt and sample in the error."""
    value, problem = returned
    return RewardPart(value, error=None if problem is None else f"{place}: {problem}", seconds=seconds)


def failed_part(error: BaseException, place: str, seconds: float = 0.0) -> RewardPart:
    """The part of a call that raised: its error holds the place, the exception and the traceback."""
    return lost_part(told(error), place, seconds)


def lost_part(error: str, place: str, seconds: float) -> RewardPart:
    """The part of a call that did not return."""
    return RewardPart(None, error=f"{place}: {error}", seconds=seconds)


def place_of(function: str, prompt_id: str, sample_index: int) -> str:
    """How errors name a judged sample."""
    return f"reward {function!r}, prompt {prompt_id}, sample {sample_index}"
