"""Pairs that look alike: of each, the answer that earns the point and its neighbour that does not."""

import json
import time

import pytest

from strop.tasks.grade_rows import grade_answer
from strop.tasks.grading.grade import GoldError, GradeMode
from strop.tasks.grading.math import equal_answers

STRICT, LENIENT = GradeMode.STRICT, GradeMode.LENIENT


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("n!!", "n !!", "(n!)!"),
        ("(n!)!", "(n!) !", "n!!"),
        ("2n!!", "2(n!!)", "2(n!)!"),
        (r"\sin^{-1}x", r"\arcsin x", r"\frac{1}{\sin x}"),
        (r"\sin^{-1}x", r"\sin^{-1}(x)", r"(\sin x)^{-1}"),
        (r"\tan^{-1}(2x)", r"\arctan(2x)", r"\frac{1}{\tan 2x}"),
        (r"\sin^{-2}x", r"\sin^{-2}(x)", r"\arcsin^2 x"),
        (r"5 \times 1", r"1 \cdot 5", "5"),
        (r"1 \times 5", "(1)(5)", "5.0"),
        (r"5 \times -1", "5(-1)", "-5"),
        (r"\frac{1}{2} x", r"\frac{x}{2}", r"\frac{1 \cdot 1}{2} x"),
        ("5--3", "5+3", "5-3"),
        ("x^2+-3x", "x^2-3x", "x^2+3x"),
        ("x--3", "x+3", "x---3"),
        (r"0.\bar{3}", r"\frac{1}{3}", "0.3"),
        (r"0.1\bar6", r"\frac16", "0.16"),
        (r"0.\bar{36}", r"\frac{4}{11}", r"0.\bar36"),
        (r"-2.\overline{3}", r"-\frac{7}{3}", "-2.3"),
        ("xy", "yx", "xz"),
        ("ab+c", "c+ba", "ac+b"),
        ("5th", "5^{th}", "5"),
        (r"2^{\text{nd}}", "2nd", "2"),
        (r"11^\text{th}", r"11\text{th}", "11"),
    ],
)
def test_strictly_a_formula_is_told_from_its_neighbour(answer: str, right: str, wrong: str) -> None:
    assert equal_answers(answer, right, STRICT)
    assert equal_answers(right, answer, STRICT)
    assert not equal_answers(answer, wrong, STRICT)
    assert not equal_answers(wrong, answer, STRICT)


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("5!!", "15", "(5!)!"),
        ("6!!", "48", "720!"),
        ("(3!)!", "720", "3!!"),
        ("0!!", "1", "0"),
        ("n!!!", "n !!!", "n!!"),
        ("171!!", "171 !!", "170!!"),
        (r"\cos^{-1}\frac12", r"\arccos(0.5)", r"\frac{1}{\cos \frac12}"),
        (r"5 \times 1", "5", "51"),
        ("5--3", "8", "2"),
        ("5+-3", "2", "8"),
        ("5^{th}", "5", "6"),
        (r"21^{\text{st}}", "21", "20"),
        ("2^{nd}", "2", "4"),
        (r"12\text{th}", "12", "10"),
        ("2^{st}", "2^{ts}", "2"),
        ("2^{th}", "2^{ht}", "2"),
        ("11^{st}", "11^{ts}", "11"),
        ("x=5, y=6", "(5,6)", "(6,5)"),
        ("(1, 2, 3)", "a=1, b=2, c=3", "(1,2)"),
        ("x=5, y=6", r"\begin{pmatrix}5\\6\end{pmatrix}", r"\begin{pmatrix}6\\5\end{pmatrix}"),
        ("x=5, y=6", "(x,y)=(5,6)", "(y,x)=(5,6)"),
        ("(y,x)=(6,5)", "x=5 and y=6", "(6,7)"),
        ("x=5, y=6", "(5, 6)", "[5,6]"),
        ("x=5, x=6", r"\{5,6\}", "(5,6)"),
        ("x=5, x=6", "6, 5", "(x,y)=(5,6)"),
        ("y=5, x=6", "y=5, x=6", "(5,6)"),
        ("x>5, y>6", "y>6, x>5", "(5,6)"),
        ("xy", "yx", "x+y"),
        (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x>3", r"x \le 2 \text{ or } x>3"),
        (r"x<2 \text{ or } x>3", "x>3, x<2", "x<2 or y>3"),
        (r"(-\infty,2)\cup(3,\infty)", "3<x or 2>x", "x<2 or y>3"),
        (r"\{1\}\cup(3,\infty)", r"(3,\infty)\cup\{1\}", "x=1 or x>3"),
        (r"\mathbb{R}", r"(-\infty,\infty)", r"[0,\infty)"),
        (r"\text{all real numbers}", r"(-\infty,+\infty)", r"(\infty,-\infty)"),
        (r"\text{all real numbers}", r"x \in \mathbb{R}", r"\mathbb{Z}"),
        ("4^n", "2^{2n}", "2^n"),
        ("6^n", "2^n 3^n", "2^n+3^n"),
        ("e^{-x}", r"\frac{1}{e^x}", "-e^x"),
        ("e^{x+y}", "e^x e^y", "e^{xy}"),
        ("2^{n/2}", r"\sqrt{2}^n", "2^n"),
        ("(-2)^n", "(-2)^{n+2}/4", "2^n"),
        ("(xy)^n", "x^n y^n", "xy^n"),
        ("x^{2n}", "(x^2)^n", "x^{n^2}"),
        ("2^{2^{n+1}}", "4^{2^n}", "2^{2^n+1}"),
        (r"(\frac{2}{3})^n", r"\frac{2^n}{3^n}", r"\frac{3^n}{2^n}"),
        ("i^n", "i^{n+4}", "i^{n+1}"),
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}", r"\frac{n(n+1)}{2}"),
        (r"\binom{n+1}{3}", r"\frac{(n+1)n(n-1)}{6}", r"\binom{n}{3}"),
        (r"\frac{10!}{3!7!}", "120", r"\frac{10!}{37!}"),
        ("|x-1|", "|1-x|", "|x+1|"),
        (r"60\text{ mph}", r"60\text{ miles per hour}", r"60\text{ km/h}"),
        (r"9\text{ m/s}", r"9\text{ meters per second}", r"9\text{ m}"),
        (r"20^\circ\text{C}", "20", r"20^\circ F"),
        (r"x\equiv 3 \pmod 7", r"x\equiv 3\pmod{7}", r"x\equiv 3\pmod 5"),
        ("2+3=5", "5", "3"),
        (r"\frac{1}{2}+\frac{1}{3}=\frac56", r"\frac{5}{6}", r"\frac{1}{3}"),
        ("f(5)=3", "3", "5"),
        (r"\frac{dy}{dx}=2x", "2x", "y=2x"),
        (r"0.\dot{3}", r"\frac{1}{3}", "0.3"),
        (r"\begin{cases}x=1\\y=2\end{cases}", "x=1, y=2", "x=2, y=1"),
        (r"\left\{\begin{cases}x=1\\y=2\\\end{cases}\right.", "(1,2)", "(2,1)"),
        ("no", "No", "on"),
        ("ok", "OK", "ko"),
        ("AB", "ab", "BA"),
    ],
)
def test_leniently_a_value_is_told_from_its_neighbour(answer: str, right: str, wrong: str) -> None:
    assert equal_answers(answer, right, LENIENT)
    assert equal_answers(right, answer, LENIENT)
    assert not equal_answers(answer, wrong, LENIENT)
    assert not equal_answers(wrong, answer, LENIENT)


@pytest.mark.parametrize("scorer", ["math", "final_answer", "numeric"])
@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("Answer: 5", 1),
        ("Answer: >5", 0),
        ("Answer: > 5", 0),
        (r"Answer: \gt 5", 0),
        ("**Answer:** >5", 0),
        ("Answer:\n> 5", 0),
        ("> Answer: 5", 1),
        ("> Answer:\n> 5", 1),
        ("> Answer: > 5", 0),
        ("Answer: <b>5</b>", 1),
        ("Answer: <b>6</b>", 0),
        ("<b>Answer:</b> 5", 1),
        ("<strong>Answer: 5</strong>", 1),
        ("Answer: 1<5>2", 0),
        ("Answer: ~~5~~ 6", 0),
    ],
)
def test_leniently_an_answer_line_is_read_as_it_looks(scorer: str, response: str, score: float) -> None:
    assert grade_answer(scorer, response, "5", LENIENT).score == score


@pytest.mark.parametrize("scorer", ["gsm8k", "math", "numeric"])
@pytest.mark.parametrize(
    ("said", "number", "score"),
    [
        ("it is 5", "5", 1),
        ("it is 2 + 3 = 5", "5", 1),
        ("it is 10 + 5", "5", 0),
        ("it is 10 - 5 apples", "5", 0),
        ("it is 10 x 5", "5", 0),
        ("it is 10 \N{MULTIPLICATION SIGN} 5", "5", 0),
        ("it is 10 times 5", "5", 0),
        ("it is 10 divided by 5", "5", 0),
        ("it is minus 5", "5", 0),
        ("it is negative 5", "5", 0),
        ("it is the square root of 5", "5", 0),
        ("it is √5", "5", 0),
        ("it is sqrt(5)", "5", 0),
        ("it is log 5", "5", 0),
        ("it is 5 pi", "5", 0),
        ("it is 5π", "5", 0),
        ("it is 5k", "5", 0),
        ("it is 5x", "5", 0),
        ("it is 5i", "5", 0),
        ("it is 5!", "5", 1),
        ("it is 5! + 1", "5", 0),
        ("it is 5 km", "5", 1),
        ("it is 5kg", "5", 1),
        ("it is 6 and 1/2", "1/2", 0),
        ("it is 6 hours 5 minutes", "5", 0),
        ("it is 6 feet and 5 inches", "5", 0),
        ("it is (4, 5)", "5", 0),
        ("it is 4, 5", "5", 0),
        ("it is 4:05", "05", 0),
        ("it is any number except 5", "5", 0),
        ("it is unknown, and not 5", "5", 0),
        ("it is close to 5", "5", 0),
    ],
)
def test_leniently_a_part_of_what_a_sentence_says_is_not_its_number(
    scorer: str, said: str, number: str, score: float
) -> None:
    assert grade_answer(scorer, f"I see: {said}.", number, LENIENT).score == score


def test_leniently_a_percentage_may_lack_its_sign_in_all_graders_of_numbers() -> None:
    for scorer, response in (("gsm8k", "#### 25%"), ("math", r"\boxed{25\%}"), ("numeric", "Answer: 25%")):
        assert grade_answer(scorer, response, "25", LENIENT).score == 1
        assert grade_answer(scorer, response, "25", STRICT).score == 0
        assert grade_answer(scorer, response, "2500", LENIENT).score == 0


def test_a_word_below_a_label_keeps_what_is_part_of_it() -> None:
    assert grade_answer("exact", "Answer: <b>Paris</b>", "paris", LENIENT, '{"place": "answer_line"}').score == 1
    assert grade_answer("exact", "Answer: >Paris", "Paris", LENIENT, '{"place": "answer_line"}').score == 0


SCHEMA = json.dumps({"type": "object", "required": ["x"], "properties": {"x": {"const": 1}}})


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ('First {"x": 2}, no: {"x": 1}.', 1),
        ('First {"x": 1}, no: {"x": 2}.', 0),
        ('{"x": 1} follows from {a, b} [see above]', 1),
        ('In {braces} I put {"x": 1}', 1),
        ('an open { and then {"x": 1}', 1),
        ('{"x": 1}, see [[this]] and [{that}]', 1),
        ('{"x": 1}, or ["x" 1]', 0),
        ('{"x": 1} and then {"x": 1,}', 0),
        ('{"x": 1} and then {"x": 2', 0),
        ('{"x": 1} and then {"x": ', 0),
        ('{"x": 1} and then {', 0),
        ('{"y": bad, "z": {"x": 1}}', 0),
        ('{"y": [1 2], "z": {"x": 1}}', 0),
        ('{"y": bad} I mean {"x": 1}', 1),
        ('```json\n{"x": 1}\n``` and not {"x": 2}', 1),
        ('```json\n{"x": 1}\n```\n```json\n{"x": 2}\n```', 0),
        ('{"x": 1} [2]', 0),
        ("no JSON here", 0),
    ],
)
def test_leniently_the_last_json_is_taken_and_a_faulty_one_is_not_passed_over(response: str, score: float) -> None:
    assert grade_answer("json_schema", response, SCHEMA, LENIENT).score == score


def test_leniently_a_text_that_is_json_is_taken_whole() -> None:
    schema = json.dumps({"type": "string"})
    assert grade_answer("json_schema", '"see {x} and [1]"', schema, LENIENT).score == 1
    assert grade_answer("json_schema", 'see {x} and "a"', schema, LENIENT).score == 0


@pytest.mark.parametrize("part", ["{", '{"a":', "[a", "{}", '{"', "[1 x]", "[t", "[[a]]", "{ ", "}", "[", '[{"a'])
def test_the_last_json_is_found_in_bounded_time(part: str) -> None:
    start = time.perf_counter()
    assert grade_answer("json_schema", part * (900_000 // len(part)) + " 7", SCHEMA, LENIENT).score == 0
    assert time.perf_counter() - start < 5


def test_a_gold_answer_that_is_a_list_of_texts_is_an_error() -> None:
    for scorer in ("math", "final_answer"):
        with pytest.raises(GoldError, match=r'must be one text, got the list \["5"'):
            grade_answer(scorer, r"\boxed{5}", '["5", "6"]')
        assert grade_answer(scorer, "Answer: " + r"\boxed{[5, 6]}", "[5,6]").score == 1
