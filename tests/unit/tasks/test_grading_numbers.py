"""Numbers have one normal form."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.tasks.grading.numbers import is_percent, last_number, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17", 17),
        ("+17", 17),
        ("-17", -17),
        ("\N{MINUS SIGN}17", -17),
        ("017", 17),
        ("17.", 17),
        ("17.50", Fraction(35, 2)),
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        ("2,500", 2500),
        ("2{,}500", 2500),
        (r"2\,500\!", 2500),
        ("12,345,678.9", Fraction(123456789, 10)),
        ("$36", 36),
        (r"\$36.20", Fraction(181, 5)),
        ("-$36", -36),
        ("€ 36", 36),
        ("36$", 36),
        ("**36**", 36),
        ("25%", Fraction(1, 4)),
        (r"25\%", Fraction(1, 4)),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"\dfrac{3}{4}", Fraction(3, 4)),
        (r"-\tfrac{3}{4}", Fraction(-3, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"\frac34", Fraction(3, 4)),
        (r"\frac3{14}", Fraction(3, 14)),
        (r"\frac{13}4", Fraction(13, 4)),
        (r"2\frac{3}{4}", Fraction(11, 4)),
        ("2 3/4", Fraction(11, 4)),
        ("-2 3/4", Fraction(-11, 4)),
        ("1.5e3", 1500),
        (r"1.5\times10^{3}", 1500),
        (r"2\cdot10^{-2}", Fraction(1, 50)),
    ],
)
def test_a_number_is_its_value_however_it_is_written(text: str, value: Fraction) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-", "$", "%", "1,2", "1,23,456", "12,34", "1 2", "1.2.3", "4/0", r"\frac{1}{0}", "x", "5 cm"),
        *("7" * 201, "1" + "0" * 50_000, "\N{SUPERSCRIPT TWO}", "--5", "3/4/5", "1e999", "1e9999999999"),
    ],
)
def test_what_is_not_wholly_one_number_has_no_value(text: str) -> None:
    assert parse_number(text) is None


@settings(deadline=None)
@given(st.fractions(max_denominator=10**6).filter(lambda value: abs(value) < 10**12))
def test_every_fraction_comes_back(value: Fraction) -> None:
    assert parse_number(f"{value.numerator}/{value.denominator}") == value
    sign = "-" if value < 0 else ""
    assert parse_number(rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}") == value


@settings(deadline=None)
@given(st.integers(-(10**15), 10**15), st.integers(0, 99))
def test_separators_change_nothing(whole: int, hundredths: int) -> None:
    assert parse_number(f"{whole:,}.{hundredths:02d}") == parse_number(f"{whole}.{hundredths:02d}")


@settings(deadline=None)
@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    parse_number(text)
    last_number(text)


def test_percent_is_told_from_plain_numbers() -> None:
    assert is_percent(r"25\%")
    assert not is_percent("25")
    assert not is_percent("about%")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3 apples and 1,250 pears.", "1,250"),
        ("so -4", "-4"),
        ("x2 is no number", None),
        ("it is 2.5.", "2.5"),
        ("", None),
    ],
)
def test_the_last_number_of_a_text_is_found(text: str, number: str | None) -> None:
    assert last_number(text) == number
