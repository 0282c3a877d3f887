"""Compares what came out of the sandbox with what is expected, in the trusted process, on plain data."""

import json
import math
import re
from typing import Any

from strop.tasks.grading.grade import GradeMode
from strop.tasks.sandbox.cases import Case

_TOLERANCE = 1e-6
_MOST_DEPTH = 100
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def prints_right(stdout: str, case: Case, mode: GradeMode) -> bool:
    """STRICT: the same lines, white space at their ends aside. LENIENT: the same words.

    A word that should be a number with a point or an exponent may be off by 1e-6; an integer may not, and has only
    zeros behind a point.
    """
    if mode is GradeMode.STRICT:
        return _lines(stdout) == _lines(case.expected)
    words, expected = stdout.split(), case.expected.split()
    return len(words) == len(expected) and all(map(_close_words, words, expected))


def returns_right(result: str, case: Case, mode: GradeMode) -> bool:
    """STRICT: the same value and kind. LENIENT: an expected list of one may be bare.

    LENIENT also takes a number within 1e-6 of an expected one with a point, and one equal to an expected integer.
    """
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return False
    if case.or_text is not None and value == case.or_text:
        return True
    if mode is GradeMode.STRICT:
        return _equal(value, case.expected, mode)
    bare = case.expected[0] if isinstance(case.expected, list) and len(case.expected) == 1 else case.expected
    return _equal(value, case.expected, mode) or _equal(value, bare, mode)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _close_words(word: str, expected: str) -> bool:
    if word == expected:
        return True
    if _INTEGER.fullmatch(expected):
        whole, point, rest = word.partition(".")
        return whole == expected and bool(point) and not rest.strip("0")
    return bool(_NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)) and _is_close(float(word), float(expected))


def _equal(value: Any, expected: Any, mode: GradeMode, depth: int = 0) -> bool:
    if depth > _MOST_DEPTH:
        return False
    if isinstance(value, list) and isinstance(expected, list):
        pairs = zip(value, expected, strict=False)
        return len(value) == len(expected) and all(_equal(one, other, mode, depth + 1) for one, other in pairs)
    if isinstance(value, dict) and isinstance(expected, dict):
        same_keys = value.keys() == expected.keys()
        return same_keys and all(_equal(value[key], expected[key], mode, depth + 1) for key in value)
    if mode is GradeMode.LENIENT and _is_number(value) and _is_number(expected):
        return bool(value == expected) or (isinstance(expected, float) and _is_close(value, expected))
    return type(value) is type(expected) and bool(value == expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_close(value: float, expected: float) -> bool:
    try:
        value = float(value)
    except OverflowError:  # an integer beyond all floats
        return False
    return math.isfinite(value) and math.isclose(value, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
