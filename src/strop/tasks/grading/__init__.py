"""Grading: what a response answers, and whether that equals the gold answer.

    response --extract.py--> answer text --numbers.py / latex.py--> normal form --gsm8k.py / math.py--> Grade

A grader is a function from (response, gold, mode) to a Grade. It never raises on a response, whatever it holds, and
its work is bounded by the length of the answer.
"""

from strop.tasks.grading.grade import Grade, GradeMode, Grader, gold_text, row_mode
from strop.tasks.grading.gsm8k import grade_gsm8k
from strop.tasks.grading.math import grade_math

__all__ = ["Grade", "GradeMode", "Grader", "gold_text", "grade_gsm8k", "grade_math", "row_mode"]
