"""What must hold of every answer: writing it otherwise changes nothing, another answer never earns the point."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.tasks.grading.grade import GradeMode
from strop.tasks.grading.math import equal_answers
from strop.tasks.grading.table import load_grader

STRICT, LENIENT = GradeMode.STRICT, GradeMode.LENIENT
MODES = st.sampled_from(GradeMode)
SMALL = st.integers(-999_999_999, 999_999_999)
DIGITS = {
    "Arabic": dict(zip("0123456789", "٠١٢٣٤٥٦٧٨٩", strict=True)),
    "full width": {digit: chr(ord(digit) + 0xFEE0) for digit in "0123456789"},
    "Devanagari": dict(zip("0123456789", "०१२३४५६७८९", strict=True)),
}
INTEGER_STYLES = {
    "plain": str,
    "commas": lambda n: f"{n:,}",
    "LaTeX commas": lambda n: f"{n:,}".replace(",", "{,}"),
    "LaTeX thin spaces": lambda n: f"{n:,}".replace(",", r"\,"),
    "thin spaces": lambda n: f"{n:,}".replace(",", "\N{THIN SPACE}"),
    "narrow no-break spaces": lambda n: f"{n:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
    "apostrophes": lambda n: f"{n:,}".replace(",", "'"),
    "Unicode minus": lambda n: str(n).replace("-", "\N{MINUS SIGN}"),
    "decimal zero": lambda n: f"{n}.0",
    "leading zero": lambda n: f"-0{-n}" if n < 0 else f"0{n}",
    "full stop": lambda n: f"{n}.",
    "currency": lambda n: rf"\${n}",
    "currency before the sign": lambda n: f"-${-n}" if n < 0 else f"${n}",
    "bold": lambda n: f"**{n}**",
    "inline": lambda n: f"${n}$",
    "parentheses": lambda n: rf"\({n}\)",
    "quotient": lambda n: f"{7 * n}/7",
    "fraction": lambda n: rf"\frac{{{3 * n}}}{{3}}",
    "percent": lambda n: rf"{100 * n}\%",
    "percent in words": lambda n: f"{100 * n} percent",
    "scientific": lambda n: f"{n}e0",
    "powers of ten": lambda n: rf"{n}000 \times 10^{{-3}}",
    "spaces": lambda n: f"  {n} ",
    **{
        name: lambda n, table=table: "".join(table.get(sign, sign) for sign in str(n)) for name, table in DIGITS.items()
    },
}


@settings(deadline=None)
@given(SMALL, st.sampled_from(sorted(INTEGER_STYLES)), st.sampled_from(sorted(INTEGER_STYLES)), MODES)
def test_the_style_in_which_a_number_is_written_changes_no_score(
    n: int, style: str, gold_style: str, mode: GradeMode
) -> None:
    answer, gold = INTEGER_STYLES[style](n), INTEGER_STYLES[gold_style](n)
    assert load_grader("math")(rf"\boxed{{{answer}}}", gold, mode).score == 1
    assert load_grader("gsm8k")(f"#### {answer}", gold, mode).score == 1
    assert load_grader("final_answer")(f"Answer: {answer}", gold, mode).score == 1
    assert load_grader("numeric")(f"Answer: {answer}", gold, mode).score == 1


@settings(deadline=None)
@given(SMALL, SMALL, st.sampled_from(sorted(INTEGER_STYLES)), st.sampled_from(sorted(INTEGER_STYLES)), MODES)
def test_another_number_never_scores(n: int, other: int, style: str, gold_style: str, mode: GradeMode) -> None:
    if n in (other, 100 * other) or other == 100 * n:
        return
    answer, gold = INTEGER_STYLES[style](n), INTEGER_STYLES[gold_style](other)
    assert load_grader("math")(rf"\boxed{{{answer}}}", gold, mode).score == 0
    assert load_grader("gsm8k")(f"#### {answer}", gold, mode).score == 0
    assert load_grader("final_answer")(f"Answer: {answer}", gold, mode).score == 0


TAKEN_BACK = (
    "not {}", "never {}", "isn't {}", "certainly not {}", "more than {}", "less than {}", "at least {}", "at most {}",
    "between 0.5 and {}", "0.5 to {}", "0.5 or {}", "{} or six", "{} to twenty", "{} dozen", "{} hundred",
    "{} and a half",    "{} halves", "{} or more", "{} is wrong", "{} is not right", "half of {}", "{}, not",
)  # fmt: skip


@settings(deadline=None)
@given(SMALL, st.sampled_from(TAKEN_BACK), st.sampled_from(["Answer: {}", "The answer is {}.", "So the answer is {}"]))
@pytest.mark.parametrize("name", ["math", "final_answer", "numeric", "gsm8k"])
def test_a_right_value_that_its_sentence_takes_back_never_scores(name: str, n: int, words: str, line: str) -> None:
    said = words.format(n)
    for response in (line.format(said), line.format(words.format(f"${n}$")), f"#### {said}", rf"\boxed{{{said}}}"):
        for mode in GradeMode:
            assert load_grader(name)(response, str(n), mode).score == 0, response


FRACTION_STYLES = {
    "plain": lambda v: f"{v.numerator}/{v.denominator}",
    "LaTeX": lambda v: rf"\frac{{{v.numerator}}}{{{v.denominator}}}",
    "sign before": lambda v: rf"{'-' if v < 0 else ''}\dfrac{{{abs(v.numerator)}}}{{{v.denominator}}}",
    "unreduced": lambda v: rf"\tfrac{{{6 * v.numerator}}}{{{6 * v.denominator}}}",
    "mixed": lambda v: _mixed(v, rf"\frac{{{abs(v) % 1 * v.denominator}}}{{{v.denominator}}}", ""),
    "plain mixed": lambda v: _mixed(v, f"{abs(v) % 1 * v.denominator}/{v.denominator}", " "),
}


def _mixed(value: Fraction, part: str, space: str) -> str:
    whole = abs(value) // 1
    return f"{'-' if value < 0 else ''}{whole}{space}{part}" if whole and abs(value) % 1 else str(value)


@settings(deadline=None)
@given(st.fractions(-1000, 1000, max_denominator=999), *[st.sampled_from(sorted(FRACTION_STYLES))] * 2, MODES)
def test_a_fraction_is_the_same_in_every_style(value: Fraction, style: str, gold_style: str, mode: GradeMode) -> None:
    answer, gold = FRACTION_STYLES[style](value), FRACTION_STYLES[gold_style](value)
    assert equal_answers(answer, gold, mode)
    assert not equal_answers(answer, FRACTION_STYLES[gold_style](value + 1), mode)


ITEMS = st.lists(st.integers(-50, 50), min_size=2, max_size=5, unique=True)


@settings(deadline=None)
@given(ITEMS.flatmap(lambda items: st.tuples(st.just(items), st.permutations(items))), MODES)
def test_sets_lists_and_unions_have_no_order_and_tuples_have(
    orders: tuple[list[int], list[int]], mode: GradeMode
) -> None:
    one, other = (", ".join(map(str, items)) for items in orders)
    assert equal_answers(rf"\{{{one}\}}", rf"\{{{other}\}}", mode)
    assert equal_answers(one, other, mode)
    unions = [r" \cup ".join(f"[{item}, {item + 1})" for item in items) for items in orders]
    assert equal_answers(*unions, mode)
    assert equal_answers(f"({one})", f"({other})", mode) == (orders[0] == orders[1])
    assert not equal_answers(rf"\{{{one}, 51\}}", rf"\{{{other}\}}", mode)


@settings(deadline=None)
@given(*[st.sampled_from("([")] * 2, *[st.sampled_from(")]")] * 2, st.integers(-9, 9), MODES)
def test_the_ends_of_an_interval_count(a: str, b: str, c: str, d: str, start: int, mode: GradeMode) -> None:
    one, other = f"{a}{start}, {start + 1}{c}", f"{b}{start},{start + 1}{d}"
    assert equal_answers(one, other, mode) == ((a, c) == (b, d))


COEFFICIENTS = st.lists(st.integers(-9, 9), min_size=3, max_size=3)


@settings(deadline=None)
@given(COEFFICIENTS, COEFFICIENTS, st.integers(1, 9))
def test_polynomials_are_equal_after_expansion_in_lenient_mode_alone(a: list[int], b: list[int], scale: int) -> None:
    factored = f"({a[0]}x+{a[1]}y+{a[2]})({b[0]}x+{b[1]}y+{b[2]})"
    x2, xy, y2 = a[0] * b[0], a[0] * b[1] + a[1] * b[0], a[1] * b[1]
    x, y, one = a[0] * b[2] + a[2] * b[0], a[1] * b[2] + a[2] * b[1], a[2] * b[2]
    expanded = f"{x2}x^2+{xy}xy+{y2}y^2+{x}x+{y}y+{one}"
    assert equal_answers(factored, expanded, LENIENT)
    assert not equal_answers(factored, expanded, STRICT)
    assert not equal_answers(factored, expanded + "+1", LENIENT)
    scaled = f"{scale * x2}x^2+{scale * xy}xy+{scale * y2}y^2+{scale * x}x+{scale * y}y+{scale * one}"
    if any((x2, xy, y2, x, y)):
        assert equal_answers(f"{scaled}=0", f"0={factored}", LENIENT)
        assert not equal_answers(f"{scaled}=1", f"0={factored}", LENIENT)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(2, 60), st.integers(1, 60), st.integers(2, 60), MODES)
def test_surds_are_equal_just_where_their_squares_are(a: int, m: int, b: int, n: int, mode: GradeMode) -> None:
    """Roots of square numbers are left out: whether they are worked out is what the two modes differ in."""
    if round(m**0.5) ** 2 == m or round(n**0.5) ** 2 == n:
        return
    assert equal_answers(rf"{a}\sqrt{{{m}}}", rf"{b} \sqrt {{{n}}}", mode) == (a * a * m == b * b * n)
    assert equal_answers(rf"\frac{{{a * m}}}{{\sqrt{{{m}}}}}", rf"{a}\sqrt{{{m}}}", mode)


@settings(deadline=None)
@given(st.text(alphabet=r"\{}()[]|,.=<>$%^_!/*0123456789x-+ boxedfractsqpmcup\n&", max_size=120), MODES)
@pytest.mark.parametrize("name", ["math", "final_answer", "gsm8k", "numeric", "choice", "f1", "exact"])
def test_no_response_raises(name: str, text: str, mode: GradeMode) -> None:
    gold = {"choice": "B", "math": r"\{1, x\}"}.get(name, "4")
    for response in (text, rf"\boxed{{{text}}}", f"Answer: {text}", f"#### {text}"):
        assert 0 <= load_grader(name)(response, gold, mode).score <= 1


@settings(deadline=None)
@given(st.text(alphabet=r"\{}()[],=^_/*0123456789xy-+ fracsqrt", min_size=1, max_size=60), MODES)
def test_equality_does_not_depend_on_the_order_of_the_two(text: str, mode: GradeMode) -> None:
    for other in ("4", "x^2+y", r"\{1,2\}", "x=3", "(1,2]", text[::-1]):
        assert equal_answers(text, other, mode) == equal_answers(other, text, mode)
