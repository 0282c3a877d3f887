"""A number within a tolerance of the gold answer.

The comparison is exact: |answer - gold| <= max(absolute_tolerance, relative_tolerance * |gold|), in fractions.
"""

from fractions import Fraction

from pydantic import Field

from strop.tasks.grading.doubt import last_undoubted_number
from strop.tasks.grading.grade import GoldError, Grade, GradeMode
from strop.tasks.grading.latex import MAX_CHARACTERS, unified
from strop.tasks.grading.numbers import Number, read_number
from strop.tasks.grading.options import GraderOptions
from strop.tasks.grading.place import Place, missing, placed_answer
from strop.tasks.grading.structure import Leaf, Relation, read_structure


class NumericOptions(GraderOptions):
    """Where the number stands and how far off it may be."""

    place: Place = "any"
    """Where the answer stands in the response."""
    absolute_tolerance: float = Field(default=0.0, ge=0)
    """Allowed distance from the gold answer."""
    relative_tolerance: float = Field(default=1e-6, ge=0)
    """Allowed distance as a share of the gold answer's size; the larger of the two tolerances counts."""


_DEFAULTS = NumericOptions()


def grade_numeric(
    response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: NumericOptions = _DEFAULTS
) -> Grade:
    """Grades by distance from a number.

    STRICT: the answer must be one number. LENIENT: it may have a unit or `x =`, the last number of a sentence counts
    unless the sentence takes it back, and 50 % may also be meant as 50.
    Raises GoldError where the gold answer is no number.
    """
    gold_number = read_number(gold.strip())
    if gold_number is None:
        raise GoldError(f"a numeric gold answer must be one number, got {gold[:80]!r}")
    answer = placed_answer(response, options.place)
    if answer is None:
        return Grade(0.0, None, mode, missing(options.place))
    number = read_number(answer)
    if number is None and mode is GradeMode.LENIENT:
        answer, number = _loosely(answer)
    if number is None:
        return Grade(0.0, answer[:200], mode, f"{answer[:80]!r} is not a number")
    distance = min(abs(value - gold_number.value) for value in _values(number, gold_number, mode))
    tolerance = max(
        Fraction(str(options.absolute_tolerance)), Fraction(str(options.relative_tolerance)) * abs(gold_number.value)
    )
    reason = f"off by {float(distance):g}, {float(tolerance):g} is allowed"
    return Grade(float(distance <= tolerance), answer, mode, reason)


def _values(number: Number, gold: Number, mode: GradeMode) -> list[Fraction]:
    """What the answer may mean: LENIENT, a percent sign on one side alone may be left out."""
    if mode is GradeMode.STRICT or number.is_percent == gold.is_percent:
        return [number.value]
    return [number.value, number.value * 100 if number.is_percent else number.value / 100]


def _loosely(answer: str) -> tuple[str, Number | None]:
    node = read_structure(unified(answer)) if len(answer) <= MAX_CHARACTERS else None
    if isinstance(node, Relation) and set(node.signs) == {"="}:
        node = node.sides[-1]
    if isinstance(node, Leaf) and node.number is not None:
        return answer, node.number
    found = last_undoubted_number(answer)
    return (answer, None) if found is None else (found, read_number(found))
