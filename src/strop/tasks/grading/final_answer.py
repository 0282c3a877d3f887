"""An answer line: `Answer: 42`, `**Final Answer:** 42`, or the label alone and the answer below.

What it says is compared as in the grader `math`, so numbers count by value and structures by kind.
"""

from strop.tasks.grading.doubt import is_doubted
from strop.tasks.grading.extract import BOXES, after_thought, answer_line, last_box, last_labelled
from strop.tasks.grading.grade import Grade, GradeMode
from strop.tasks.grading.math import gold_answer, grade_equality, narrowed


def grade_final_answer(response: str, gold: str, mode: GradeMode = GradeMode.STRICT) -> Grade:
    r"""Grades the last answer line behind the thought; a box in it is opened.

    STRICT: the line must begin with the label and hold the answer alone. LENIENT: "answer is" may stand inside a
    sentence, a box may stand for the line, and of a sentence its one formula or one number counts.
    Raises GoldError for an empty gold answer.
    """
    gold = gold_answer(gold)
    text = after_thought(response)
    line = answer_line(text)
    if not line and mode is GradeMode.LENIENT:
        line = last_labelled(text) or last_box(text, BOXES)
    if not line:
        return Grade(0.0, line, mode, "the answer line is empty" if line == "" else "no answer line in the response")
    boxed = last_box(line, BOXES)
    answer = line if boxed is None else boxed
    if boxed is not None and is_doubted(line.partition(boxed)[0], line.rpartition(boxed)[2].removeprefix("}")):
        return Grade(0.0, answer, mode, "the line takes the answer in its box back")
    grade = grade_equality(answer, gold, mode)
    if grade.score or mode is GradeMode.STRICT or narrowed(line) == answer:
        return grade
    return grade_equality(narrowed(line), gold, mode)
