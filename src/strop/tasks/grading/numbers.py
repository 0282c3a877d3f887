r"""Numbers have one normal form: an exact fraction.

`1,000`, `1000.0`, `\$1{,}000`, `2000/2`, `\frac{2000}{2}` and `1e3` are all 1000; `50\%` is 1/2; `1\frac{1}{2}` and
`1 1/2` are 3/2. A comma separates thousands only where it stands at thousands: `1,2` is no number. Text that is not
wholly a number has no normal form, and neither has one of more than 200 characters or with an exponent over 99, so
that the work is bounded.
"""

import re
from fractions import Fraction

_MAX_CHARACTERS = 200

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_EXPONENT = r"(?:[eE][+-]?\d{1,2}|(?:\\times|\\cdot|\*)10\^(?:\{[+-]?\d{1,2}\}|\d))"
_LATEX_FRACTION = (
    rf"\\frac(?:\{{(?P<top>-?{_DECIMAL})\}}\{{(?P<bottom>-?{_DECIMAL})\}}"
    rf"|(?P<top1>\d)(?:(?P<bottom1>\d)|\{{(?P<bottom2>{_DECIMAL})\}})|\{{(?P<top2>-?{_DECIMAL})\}}(?P<bottom3>\d))"
)
_PLAIN_FRACTION = rf"(?P<over>{_DECIMAL})/(?P<under>-?{_DECIMAL})"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)(?:{_PLAIN_FRACTION}|(?P<whole>\d+)?\s*{_LATEX_FRACTION}"
    rf"|(?P<mixed>\d+)\s+(?P<part>\d+)/(?P<parts>\d+)|(?P<decimal>{_DECIMAL})(?P<exponent>{_EXPONENT})?)"
)
_PERCENT = re.compile(r"\s*\\?%$")
_MONEY = re.compile(r"^([+-]?)\s*(?:\\?\$|€|£)\s*")


def parse_number(text: str) -> Fraction | None:
    """The exact value of a text that is wholly one number; None where it is not."""
    text = _plain_signs(text)
    if not text or len(text) > _MAX_CHARACTERS:
        return None
    percent = _PERCENT.search(text)
    if percent:
        text = text[: percent.start()]
    match = _NUMBER.fullmatch(text)
    value = _value(match) if match else None
    return value / 100 if value is not None and percent else value


def is_percent(text: str) -> bool:
    """Whether the text is a number in percent."""
    return bool(_PERCENT.search(text.strip())) and parse_number(text) is not None


def last_number(text: str) -> str | None:
    """The last number that stands in a text as digits (with sign, separators, fraction bar); None without one."""
    found = None
    for match in re.finditer(rf"(?<![\w.])-?{_DECIMAL}(?:/{_DECIMAL})?", text):
        found = match.group()
    return found.rstrip(".") if found else None


def _plain_signs(text: str) -> str:
    """Takes off what surrounds a number, and writes signs and separators in one way."""
    for written, plain in (("\N{MINUS SIGN}", "-"), ("{,}", ","), (r"\!", ""), (r"\,", ""), ("**", "")):
        text = text.replace(written, plain)
    text = re.sub(r"\\[dtc]frac", r"\\frac", text).strip().rstrip(".").strip().removesuffix("$").strip()
    return _MONEY.sub(r"\1", text)


def _value(match: re.Match[str]) -> Fraction | None:
    groups = match.groupdict()
    if groups["decimal"] is not None:
        value: Fraction | None = _decimal(groups["decimal"]) * Fraction(10) ** _exponent(groups["exponent"])
    elif groups["over"] is not None:
        value = _quotient(groups["over"], groups["under"])
    elif groups["mixed"] is not None:
        value = _mixed(groups["mixed"], _quotient(groups["part"], groups["parts"]))
    else:
        top = groups["top"] or groups["top1"] or groups["top2"]
        bottom = groups["bottom"] or groups["bottom1"] or groups["bottom2"] or groups["bottom3"]
        value = _mixed(groups["whole"] or "0", _quotient(top, bottom))
    return -value if value is not None and groups["sign"] == "-" else value


def _decimal(text: str) -> Fraction:
    text = text.replace(",", "").removesuffix(".")
    return Fraction(text if text[0] != "." else "0" + text)


def _exponent(text: str | None) -> int:
    return int(re.sub(r"^(?:[eE]|.*\^)|[{}]", "", text)) if text else 0


def _quotient(top: str, bottom: str) -> Fraction | None:
    under = _signed_decimal(bottom)
    return _signed_decimal(top) / under if under else None


def _signed_decimal(text: str) -> Fraction:
    return -_decimal(text[1:]) if text.startswith("-") else _decimal(text)


def _mixed(whole: str, part: Fraction | None) -> Fraction | None:
    return None if part is None else int(whole) + part
