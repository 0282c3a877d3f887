"""Graders: which responses earn the point."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.tasks.grading import Grade, GradeMode, grade_gsm8k, grade_math
from strop.tasks.grading.latex import enclosed, normal_text, split_list, unified
from strop.tasks.grading.units import split_unit

STRICT, LENIENT = GradeMode.STRICT, GradeMode.LENIENT


@pytest.mark.parametrize(
    ("response", "gold", "score"),
    [
        ("12 + 6 = 18\n#### 18", "18", 1),
        ("#### 18\nI have checked it twice.", "18", 1),
        ("####18", "18", 1),
        ("#### $1,800.00.", "1800", 1),
        (r"#### \$18", "18", 1),
        ("#### **18**", "18", 1),
        ("#### 18", "9 + 9 = <<9+9=18>>18\n#### 18", 1),
        ("#### 1800", "1,800", 1),
        ("#### 17\n#### 18", "18", 1),
        ("#### 18\n#### 17", "18", 0),
        ("#### -18", "18", 0),
        ("#### 18 apples", "18", 0),
        ("<think>#### 18</think>I do not know", "18", 0),
        ("It is 18.", "18", 0),
        ("####", "18", 0),
        ("", "18", 0),
    ],
)
def test_gsm8k_strict(response: str, gold: str, score: float) -> None:
    assert grade_gsm8k(response, gold).score == score


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("It is 18.", 1),
        ("#### 18 apples", 1),
        ("#### 17 apples, now 18", 1),
        ("#### none, 18", 1),
        ("18, no, 17", 0),
        ("?", 0),
    ],
)
def test_gsm8k_lenient_takes_the_last_number(response: str, score: float) -> None:
    assert grade_gsm8k(response, "18", LENIENT).score == score


def test_a_grade_says_what_was_taken_and_why() -> None:
    assert grade_gsm8k("#### 17", "18") == Grade(0.0, "17", STRICT, "the number is wrong")
    assert grade_gsm8k("17", "18") == Grade(0.0, None, STRICT, "no #### in the response")
    assert grade_math(r"\boxed{}", "18") == Grade(0.0, "", STRICT, "the last box is empty")


def test_a_gold_answer_that_cannot_be_read_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="must be a number"):
        grade_gsm8k("#### 18", "eighteen")
    with pytest.raises(ValueError, match="must not be empty"):
        grade_math(r"\boxed{18}", " ")


EQUAL = [
    ("18", "18.0"),
    (r"\frac34", "0.75"),
    (r"\dfrac{3}{4}", r"\frac{3}{4}"),
    (r"2\frac34", r"\frac{11}{4}"),
    (r"75\%", r"\frac{3}{4}"),
    (r"\left(3, \infty\right)", r"(3,\infty)"),
    (r"(3,4.0)", "(3, 4)"),
    (r"\{c, 1\}", r"\{1.0,c\}"),
    ("1, 2", r"2 \text{ and } 1"),
    (r"\pm 3", "3, -3"),
    (r"\text{Tuesday}", "Tuesday"),
    (r"x^{2}+1", "x^2 + 1"),
    ("y=2x", "y = 2x"),
    ("1,250", "1250"),
    ("5:4", "5 : 4"),
    (r"$\sqrt2$", r"\sqrt{2}"),
    (r"2 \cdot 3", r"2\times 3"),
    ("7", r"Adding both gives \boxed{7}."),
]
DIFFERENT = [
    ("18", "19"),
    ("(4,3)", "(3,4)"),
    ("[3,4)", "(3,4)"),
    ("(3,4]", "(3,4)"),
    ("3,4", "34"),
    ("1 1/2", "11/2"),
    ("(1200)", "(1, 200)"),
    ("3", "3, -3"),
    ("3, 3", "3, -3"),
    (r"\{1\}", r"\{1,1\}"),
    ("(1,2,3)", "(1,2)"),
    ("x=7", "7"),
    (r"7\text{ cm}", "7"),
    ("50", r"50\%"),
    ("x^2", "x^3"),
    (r"\frac{1}{10!}", r"\frac{1}{11!}"),
    (r"\sqrt{2}", "2"),
    ("y=2x", "y=3x"),
    ("a", "A"),
]


@pytest.mark.parametrize(("answer", "gold"), EQUAL)
def test_math_answers_that_are_equal(answer: str, gold: str) -> None:
    assert grade_math(rf"So \boxed{{{answer}}}.", gold).score == 1


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_math_answers_that_differ(answer: str, gold: str) -> None:
    assert grade_math(rf"\boxed{{{answer}}}", gold).score == 0
    assert grade_math(rf"\boxed{{{gold}}}", answer).score == 0


@pytest.mark.parametrize(
    ("response", "gold", "score"),
    [
        (r"\boxed{7\text{ cm}}", "7", 1),
        (r"\boxed{7}", r"7\text{ cm}", 1),
        (r"\boxed{7 \text{ cm}}", r"7.0 \mathrm{cm}", 1),
        (r"\boxed{7\text{ cm}}", r"7\text{ km}", 0),
        (r"\boxed{30^\circ}", "30", 1),
        (r"\boxed{n = 7}", "7", 1),
        (r"\boxed{n=7}", "m=7", 0),
        (r"\boxed{40\%}", "40", 1),
        (r"\boxed{40\%}", "0.4", 1),
        (r"\boxed{40}", r"40\%", 1),
        (r"\boxed{40\%}", "4", 0),
        (r"\fbox{7}", "7", 1),
        ("The answer is 7.", "7", 1),
        ("**Answer:** $\\frac{1}{2}$, since 4 is even", "0.5", 1),
        ("So $x$ is $7$", "7", 1),
        (r"\boxed{8} although 7 is nice", "7", 0),
        (r"\boxed{7", "7", 0),
        ("no idea", "7", 0),
        (r"\boxed", "7", 0),
        (r"\fbox and \boxed", "7", 0),
    ],
)
def test_math_lenient(response: str, gold: str, score: float) -> None:
    assert grade_math(response, gold, LENIENT).score == score


@pytest.mark.parametrize(
    "answer",
    [
        "(" * 20_000,
        r"\frac{" * 5_000 + "}" * 5_000,
        "1" + " " * 990,
        "9^{9^{9^{9}}}",
        "1," * 490 + "1",
        r"\{" * 400 + r"\}" * 400,
        "1" + r"\, " * 300 + "x",
        "=" * 900,
        "(x+1)^{2000}",
        "+".join(["(x+1)^{64}"] * 35),
        r"\sqrt" * 150 + "x",
        r"\frac" * 150 + "x",
        "2^" * 140 + "2",
        "x" + "!" * 280,
        "1" + "/2" * 140,
        "|" * 280,
        r"\sin" * 200 + "x",
        "(a+b+c+d+e+f)^{40}",
        "7" * 900,
        r"\sqrt{" + "7" * 200 + "}",
        "x^{999999}",
        "2^{999999}",
        "-" * 900,
        "{" * 450 + "}" * 450,
    ],
)
@pytest.mark.parametrize("mode", [STRICT, LENIENT])
def test_hostile_answers_get_a_verdict_soon(answer: str, mode: GradeMode) -> None:
    start = time.perf_counter()
    for response in (rf"\boxed{{{answer}}}", answer, answer + "$"):
        for gold in ("4", "1, 2", r"\{\{1\},\{2\}\}"):
            assert grade_math(response, gold, mode).score == 0
        grade_gsm8k("####" + response, "4", mode)
    assert time.perf_counter() - start < 2


@settings(deadline=None)
@given(st.text(alphabet=r"\{}()[],.=$%0123456789x-^ boxedfractn", max_size=80), st.sampled_from(GradeMode))
def test_no_response_raises_and_every_answer_equals_itself(text: str, mode: GradeMode) -> None:
    grade_math(text, "4", mode)
    grade_gsm8k(text, "4", mode)
    box = rf"\boxed{{{text}}}"
    grade = grade_math(box, "4", mode)
    if grade.answer and mode is STRICT and text.strip() == grade.answer and r"\boxed" not in text:
        assert grade_math(box, text, mode).score == 1


def test_spelling_and_pieces() -> None:
    assert normal_text(unified(r"\left( 1, \dfrac12 \right].")) == r"(1,\frac{1}{2}]"
    assert split_list("1,250, (2,3), a") == ["1,250", "(2,3)", "a"]
    assert split_list("1,2") == ["1", "2"]
    assert enclosed("(1,2]") == ("(", "1,2", "]")
    assert enclosed("(1)(2)") is None
    assert enclosed("") is None
    assert split_unit(r"10\text{ cm}^2") == ("10", "cm^2")
    assert split_unit("10") == ("10", "")
