r"""Competition mathematics: the answer is what stands in the last whole `\boxed{...}` behind the thought.

    response --extract--> answer --latex--> one spelling --structure--> pieces --compare--> equal or not

`docs/grading.md` says what is equal in which mode.
"""

import re
from functools import lru_cache
from typing import Literal

from strop.tasks.grading.characters import plain_characters
from strop.tasks.grading.compare import Comparison, LastResort
from strop.tasks.grading.doubt import is_doubted, is_doubted_at, last_undoubted_number
from strop.tasks.grading.extract import BOX, BOXES, after_thought, answer_line, last_box, last_labelled
from strop.tasks.grading.grade import GoldError, Grade, GradeMode
from strop.tasks.grading.latex import MAX_CHARACTERS, normal_text, unified
from strop.tasks.grading.numbers import number_places
from strop.tasks.grading.options import GraderOptions
from strop.tasks.grading.structure import Node, read_structure

Fallback = Literal["answer_line", "formula", "number"]

_INLINE_MATH = re.compile(r"(?<!\\)\$([^$]{1,200})(?<!\\)\$")
_ANY_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")


class MathOptions(GraderOptions):
    """What may count where no box is."""

    fallback: tuple[Fallback, ...] | None = None
    r"""Tried in this order where there is no box at all: the line behind "answer is" or "Answer:", the last formula
    between `$`, the last number. None tries nothing in STRICT mode and all three in LENIENT mode."""


_DEFAULTS = MathOptions()
_ALL_FALLBACKS: tuple[Fallback, ...] = ("answer_line", "formula", "number")


def grade_math(response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: MathOptions = _DEFAULTS) -> Grade:
    r"""Grades the last whole box behind the thought; LENIENT, `\fbox` counts as a box too.

    Raises GoldError for an empty gold answer.
    """
    gold = gold_answer(gold)
    answer = boxed_answer(response, mode, options)
    if not answer:
        return Grade(0.0, answer, mode, "the last box is empty" if answer == "" else "no closed box in the response")
    return grade_equality(answer, gold, mode)


def grade_equality(answer: str, gold: str, mode: GradeMode, last_resort: LastResort | None = None) -> Grade:
    """Compares an extracted answer with the gold answer."""
    if len(answer) > MAX_CHARACTERS:
        return Grade(0.0, answer[:80], mode, f"the answer is longer than {MAX_CHARACTERS} characters")
    if equal_answers(answer, gold, mode, last_resort):
        return Grade(1.0, answer, mode, "the answer equals the gold answer")
    return Grade(0.0, answer, mode, "the answer differs from the gold answer")


def equal_answers(answer: str, gold: str, mode: GradeMode, last_resort: LastResort | None = None) -> bool:
    """Whether two answers are equal in a mode. The work is bounded by their lengths, and those by MAX_CHARACTERS."""
    if answer == gold:
        return True
    if max(len(answer), len(gold)) > MAX_CHARACTERS:
        return False
    one, other = unified(answer), unified(gold)
    if normal_text(one) == normal_text(other):
        return True
    return Comparison(mode, last_resort).equal(_structure(one), _structure(other))


@lru_cache(maxsize=4096)
def _structure(text: str) -> Node:
    """One group answers one question many times: what was read once is kept."""
    return read_structure(text)


def clear_cache() -> None:
    """Forgets the answers read so far, for measurements."""
    _structure.cache_clear()


def gold_answer(gold: str) -> str:
    r"""The gold answer, which may be a whole solution with a `\boxed{...}`.

    Raises GoldError for an empty one, and for a list of texts, which no response would equal.
    """
    boxed = last_box(gold)
    answer = gold.strip() if boxed is None else boxed
    if not answer:
        raise GoldError(f"a gold answer must not be empty, got {gold[-80:]!r}")
    if answer.startswith('["'):
        raise GoldError(f"a gold answer must be one text, got the list {answer[:80]}")
    return answer


def boxed_answer(response: str, mode: GradeMode, options: MathOptions = _DEFAULTS) -> str | None:
    """The answer of a response; None where there is none."""
    text = after_thought(response)
    boxed = last_box(text, BOXES if mode is GradeMode.LENIENT else BOX)
    if boxed is not None:
        return boxed
    fallback = options.fallback
    if fallback is None:
        fallback = _ALL_FALLBACKS if mode is GradeMode.LENIENT else ()
    return None if _ANY_BOX.search(text) else _unboxed_answer(text, fallback)


def _unboxed_answer(text: str, fallback: tuple[Fallback, ...]) -> str | None:
    labelled = answer_line(text) or last_labelled(text)
    if labelled and "answer_line" in fallback:
        return narrowed(labelled)
    if "formula" in fallback and (formulas := list(_INLINE_MATH.finditer(text))):
        last = formulas[-1]
        return None if is_doubted_at(text, *last.span()) else last[1]
    return last_undoubted_number(text) if "number" in fallback else None


def narrowed(line: str) -> str:
    """The one formula in a sentence such as "$5$, since 4 is even", or its one number; all of it where there are more.

    Of "4 or 5" nothing is chosen: an answer that says two things is neither. Nor is 5 the answer of "not 5".
    """
    line = plain_characters(line)
    places = [match.span(1) for match in _INLINE_MATH.finditer(line)]
    if not places and not _looks_like_formula(line):
        places = number_places(line)
    values = {line[start:stop].rstrip(".") for start, stop in places}
    if len(values) != 1:
        return line
    start, stop = places[0][0], places[-1][1]
    is_taken_back = is_doubted(line[:start], line[stop:]) or is_doubted_at(line, start, stop)
    return line if is_taken_back else values.pop()


def _looks_like_formula(line: str) -> bool:
    """Whether a line is more than a sentence: commas that words follow are those of a sentence."""
    return re.search(r"[\\=^<>{}\[\]();/%]|,(?!\s*[a-z]{2})", line) is not None
