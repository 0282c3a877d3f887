"""GSM8K: the answer is the number behind the last `####`.

The gold answer is a number, or a whole GSM8K solution that ends with `#### number`.
"""

from strop.tasks.grading.doubt import last_undoubted_number
from strop.tasks.grading.extract import after_thought, last_marked
from strop.tasks.grading.grade import GoldError, Grade, GradeMode
from strop.tasks.grading.numbers import Number, equal_in_percent, read_number, same_currency

MARKER = "####"


def grade_gsm8k(response: str, gold: str, mode: GradeMode = GradeMode.STRICT) -> Grade:
    """Grades by the value of a number.

    STRICT: the line behind the last `####` must be one number (a currency sign, bold and a full stop aside).
    LENIENT: the last number of that line counts, or that of the response where there is no marker, unless its
    sentence takes it back as in "not 5" and "more than 5"; 50 % may also be meant as 50.
    Raises GoldError where the gold answer has no number.
    """
    gold_value = read_number(gold_number(gold))
    answer_part = after_thought(response)
    answer = last_marked(answer_part, MARKER)
    if mode is GradeMode.LENIENT and (answer is None or read_number(answer) is None):
        answer = last_undoubted_number(answer_part if answer is None else answer)
    if answer is None:
        return Grade(0.0, None, mode, f"no {MARKER} in the response" if mode is GradeMode.STRICT else "no number found")
    return _compared(answer, gold_value, mode)


def gold_number(gold: str) -> str:
    """The number of a gold answer, which may be a whole solution; raises GoldError where there is none."""
    marked = last_marked(gold, MARKER)
    number = gold.strip() if marked is None else marked
    if read_number(number) is None:
        raise GoldError(f"a GSM8K gold answer must be a number or end with `{MARKER} number`, got {gold[-80:]!r}")
    return number


def _compared(answer: str, gold: Number | None, mode: GradeMode) -> Grade:
    number = read_number(answer)
    if number is None or gold is None:
        return Grade(0.0, answer, mode, f"{answer[:80]!r} is not a number")
    if number.value != gold.value and not (mode is GradeMode.LENIENT and equal_in_percent(number, gold)):
        return Grade(0.0, answer, mode, "the number is wrong")
    if not same_currency(number, gold):
        return Grade(0.0, answer, mode, f"the currency must be {gold.currency}")
    return Grade(1.0, answer, mode, "the number is right")
