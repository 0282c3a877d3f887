"""Compares what came out of the sandbox with what is expected, in the trusted process, on plain data."""

import json
import math
from typing import Any

from strop.tasks.grading.grade import GradeMode
from strop.tasks.sandbox.cases import Case

_TOLERANCE = 1e-6
_MOST_DEPTH = 100


def prints_right(stdout: str, case: Case, mode: GradeMode) -> bool:
    """STRICT: the same lines, white space at their ends aside. LENIENT: the same words, numbers within 1e-6."""
    if mode is GradeMode.STRICT:
        return _lines(stdout) == _lines(case.expected)
    words, expected = stdout.split(), case.expected.split()
    return len(words) == len(expected) and all(map(_close_words, words, expected))


def returns_right(result: str, case: Case, mode: GradeMode) -> bool:
    """STRICT: the same value and kind. LENIENT: numbers within 1e-6, and an expected list of one may be bare."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return False
    if mode is GradeMode.STRICT:
        return _equal(value, case.expected, mode)
    bare = case.expected[0] if isinstance(case.expected, list) and len(case.expected) == 1 else case.expected
    return _equal(value, case.expected, mode) or _equal(value, bare, mode)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _close_words(word: str, expected: str) -> bool:
    if word == expected:
        return True
    try:
        return math.isclose(float(word), float(expected), rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    except ValueError:
        return False


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
        return math.isclose(value, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(value) is type(expected) and bool(value == expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
