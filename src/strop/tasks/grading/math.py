r"""Competition mathematics: the answer is what stands in the last `\boxed{...}`.

Two answers are equal when they are the same after spelling is unified, when they are numbers of one value, or when
they are lists, sets, tuples, intervals or equations of the same kind whose pieces are equal. Nothing is evaluated
symbolically: `x(x+1)` and `x^2+x` are different here, which costs a right answer its point but never gives one to a
wrong answer.
"""

import re

from strop.tasks.grading.extract import after_thought, last_box, last_marked
from strop.tasks.grading.grade import GoldError, Grade, GradeMode
from strop.tasks.grading.latex import MAX_CHARACTERS, enclosed, normal_text, split_list, split_unit
from strop.tasks.grading.numbers import is_percent, last_number, parse_number

_MAX_DEPTH = 5
_JOINED = re.compile(r"\\text\{\s*(?:and|or)\s*\}|\b(?:and|or)\b")
_ASSIGNMENT = re.compile(r"\s*\\?[A-Za-z]\w*\s*=(?P<value>[^=]+)", re.DOTALL)
_INLINE_MATH = re.compile(r"(?<!\\)\$([^$]{1,200})(?<!\\)\$")
_ANSWER_LABEL = re.compile(r"answer(?:\s+is)?\s*[:=]?", re.IGNORECASE)


def grade_math(response: str, gold: str, mode: GradeMode = GradeMode.STRICT) -> Grade:
    r"""Grades the last box behind the thought.

    LENIENT: `\fbox` counts as a box, and without any box the text behind "answer is", the last inline formula or the
    last number does; `x = 5` answers 5, a unit may be missing on one side, 50 % is 50 as well as 1/2.
    Raises GoldError for an empty gold answer.
    """
    gold = gold_answer(gold)
    answer = _answer(after_thought(response), mode)
    if not answer:
        return Grade(0.0, answer, mode, "the last box is empty" if answer == "" else "no closed box in the response")
    if len(answer) > MAX_CHARACTERS:
        return Grade(0.0, answer[:80], mode, f"the answer is longer than {MAX_CHARACTERS} characters")
    if _equal(answer, gold, mode):
        return Grade(1.0, answer, mode, "the answer equals the gold answer")
    return Grade(0.0, answer, mode, "the answer differs from the gold answer")


def gold_answer(gold: str) -> str:
    r"""The gold answer, which may be a whole solution with a `\boxed{...}`; raises GoldError for an empty one."""
    boxed = last_box(gold)
    answer = gold.strip() if boxed is None else boxed
    if not answer:
        raise GoldError(f"a gold answer must not be empty, got {gold[-80:]!r}")
    return answer


def _answer(text: str, mode: GradeMode) -> str | None:
    if mode is GradeMode.STRICT:
        return last_box(text)
    if re.search(r"\\(?:boxed|fbox)\b", text):
        return last_box(text, (r"\boxed", r"\fbox"))
    return _unboxed_answer(text)


def _unboxed_answer(text: str) -> str | None:
    labels = _ANSWER_LABEL.findall(text)
    labelled = last_marked(text, labels[-1]) if labels else None
    text = labelled or text
    formulas = _INLINE_MATH.findall(text)
    return str(formulas[-1]) if formulas else last_number(text)


def _equal(answer: str, gold: str, mode: GradeMode, depth: int = 0) -> bool:
    if normal_text(answer) == normal_text(gold):
        return True
    if depth > _MAX_DEPTH:
        return False
    if _equal_numbers(answer, gold, mode):
        return True
    if mode is GradeMode.LENIENT and _equal_loosely(answer, gold, depth):
        return True
    return _equal_lists(answer, gold, mode, depth) or _equal_enclosed(answer, gold, mode, depth)


def _equal_numbers(answer: str, gold: str, mode: GradeMode) -> bool:
    answer_value, gold_value = (parse_number(normal_text(text)) for text in (answer, gold))
    if answer_value is None or gold_value is None:
        return False
    if answer_value == gold_value:
        return True
    if mode is GradeMode.STRICT or is_percent(answer) == is_percent(gold):
        return False
    return answer_value * 100 == gold_value if is_percent(answer) else answer_value == gold_value * 100


def _equal_loosely(answer: str, gold: str, depth: int) -> bool:
    """Compares without a unit, or without `x =`, where one side alone has it; where both have one, they must agree."""
    (answer_value, answer_unit), (gold_value, gold_unit) = split_unit(answer), split_unit(gold)
    if answer_unit or gold_unit:
        agree = not (answer_unit and gold_unit) or answer_unit == gold_unit
        return agree and _equal(answer_value, gold_value, GradeMode.LENIENT, depth + 1)
    answer_side, gold_side = _ASSIGNMENT.fullmatch(answer), _ASSIGNMENT.fullmatch(gold)
    if (answer_side is None) == (gold_side is None):
        return False
    answer_value = answer_side["value"] if answer_side else answer
    gold_value = gold_side["value"] if gold_side else gold
    return _equal(answer_value, gold_value, GradeMode.LENIENT, depth + 1)


def _equal_lists(answer: str, gold: str, mode: GradeMode, depth: int) -> bool:
    """Compares lists of solutions, joined by commas, "and", "or" or a plus-minus sign, in any order."""
    answers, golds = _solutions(answer), _solutions(gold)
    if len(answers) == 1 and len(golds) == 1:
        return _equal_sides(answer, gold, mode, depth)
    return _equal_unordered(answers, golds, mode, depth)


def _equal_sides(answer: str, gold: str, mode: GradeMode, depth: int) -> bool:
    """Compares two equations side by side."""
    answer_sides, gold_sides = answer.split("="), gold.split("=")
    if len(answer_sides) != 2 or len(gold_sides) != 2:
        return False
    pairs = zip(answer_sides, gold_sides, strict=True)
    return all(_equal(answer_side, gold_side, mode, depth + 1) for answer_side, gold_side in pairs)


def _equal_enclosed(answer: str, gold: str, mode: GradeMode, depth: int) -> bool:
    """Compares sets in any order; tuples, points and intervals in order and with the same brackets."""
    answer_parts, gold_parts = enclosed(normal_text(answer)), enclosed(normal_text(gold))
    if answer_parts is None or gold_parts is None:
        return False
    if (answer_parts[0], answer_parts[2]) != (gold_parts[0], gold_parts[2]):
        return False
    answers, golds = split_list(answer_parts[1]), split_list(gold_parts[1])
    if answer_parts[0] == r"\{":
        return _equal_unordered(answers, golds, mode, depth)
    if len(answers) != len(golds):
        return False
    return all(_equal(answer, gold, mode, depth + 1) for answer, gold in zip(answers, golds, strict=True))


def _equal_unordered(answers: list[str], golds: list[str], mode: GradeMode, depth: int) -> bool:
    if len(answers) != len(golds):
        return False
    left = list(golds)
    for answer in answers:
        match = next((gold for gold in left if _equal(answer, gold, mode, depth + 1)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _solutions(text: str) -> list[str]:
    solutions: list[str] = []
    for part in split_list(_JOINED.sub(",", text)):
        if part.startswith(r"\pm"):
            value = part.removeprefix(r"\pm").strip()
            solutions += [value, f"-{value}"]
        elif part:
            solutions.append(part)
    return solutions
