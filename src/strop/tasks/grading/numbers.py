r"""Numbers have one normal form: an exact fraction.

`1,000`, `1 000`, `1000.0`, `\$1{,}000`, `2000/2`, `\frac{2000}{2}`, `1e3` and `1 thousand` are all 1000; `50\%` is
1/2; `1\frac12` and `1 1/2` are 3/2; `0.\overline{3}` and `0.\bar3` are 1/3. A comma separates thousands only where it
stands at thousands: `1,2` is no number. Text that is not wholly a number has no normal form, and neither has one of
more than 200 characters or with an exponent over 99, so that the work is bounded.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from strop.tasks.grading.characters import plain_characters

_MAX_CHARACTERS = 200

_DIGITS = r"(?:\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+|(?:'\d{3})+)(?!\d)|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_REPEATING = r"\d*\.\d*\\(?:(?:overline|bar)\s*\{\s*\d+\s*\}|(?:overline|bar|dot)\s*(?:\{\s*\d\s*\}|\d))"
_EXPONENT = r"(?:[eE][+-]?\d{1,2}|\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*(?:\{\s*[+-]?\d{1,2}\s*\}|[+-]?\d{1,2}))"
_LATEX_FRACTION = (
    rf"\\frac\s*(?:\{{\s*(?P<top>-?\s*{_DECIMAL})\s*\}}\s*\{{\s*(?P<bottom>-?\s*{_DECIMAL})\s*\}}"
    rf"|(?P<top1>\d)\s*(?:(?P<bottom1>\d)|\{{\s*(?P<bottom2>{_DECIMAL})\s*\}})"
    rf"|\{{\s*(?P<top2>-?\s*{_DECIMAL})\s*\}}\s*(?P<bottom3>\d))"
)
_PLAIN_FRACTION = rf"(?P<over>{_DECIMAL})\s*/\s*(?P<under>-?{_DECIMAL})"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:(?P<whole>\d+)?\s*{_LATEX_FRACTION}|(?P<mixed>\d+)\s+(?P<part>\d+)/(?P<parts>\d+)"
    rf"|{_PLAIN_FRACTION}|(?P<repeating>{_REPEATING})|(?P<decimal>{_DECIMAL})(?P<exponent>{_EXPONENT})?)"
)
_SIMPLE = re.compile(r"-?\d{1,18}")
_PERCENT = re.compile(r"\s*(?:\\?%|\\text\{\s*(?:\\?%|per\s?cent)\s*\}|per\s?cent)$", re.IGNORECASE)
_CURRENCY = r"(?:US)?\\?\$|[€£¥₹]"
_MONEY_BEFORE = re.compile(rf"(?P<sign>[+-]?)\s*(?P<currency>{_CURRENCY})\s*(?=[-+.\d\\])")
_MONEY_BEHIND = re.compile(rf"(?<=[\d.}}])\s*(?P<currency>{_CURRENCY})$")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = re.compile(rf"(?<=[\d}}])\s*(?:\\text\{{)?\s*(?P<scale>{'|'.join(_SCALES)})(?:\s*\}})?$", re.IGNORECASE)
_FRACTION_COMMAND = re.compile(r"\\[dtc]frac")
_DRESSING = re.compile(r"\*\*|__|`|\\!|\\displaystyle(?![A-Za-z])|\\left(?![A-Za-z])|\\right(?![A-Za-z])")
_THIN_SPACE = re.compile(r"\\[,;: ]|~|\s+")
_IN_TEXT = re.compile(rf"(?<![\w.])-?{_DECIMAL}(?:/{_DECIMAL})?")


class Number(NamedTuple):
    """An exact value, and how it was written where that may matter."""

    value: Fraction
    """In percent already divided by 100."""
    is_percent: bool = False
    currency: str = ""
    """Its sign (`$`, `€`, `£`, `¥`, `₹`); empty without one."""


def read_number(text: str) -> Number | None:
    """The number that the text wholly is; None where it is not."""
    if _SIMPLE.fullmatch(text):
        return Number(Fraction(int(text)))
    if not text or len(text) > _MAX_CHARACTERS:
        return None
    text, currency = _without_currency(_undressed(plain_characters(text)))
    percent = _PERCENT.search(text)
    if percent:
        text = text[: percent.start()].rstrip()
    scale = _SCALE.search(text)
    if scale:
        text = text[: scale.start()]
    match = _NUMBER.fullmatch(text)
    value = _value(match) if match else None
    if value is None:
        return None
    value *= 10 ** _SCALES[scale["scale"].lower()] if scale else 1
    return Number(value / 100 if percent else value, bool(percent), currency)


def parse_number(text: str) -> Fraction | None:
    """The exact value of a text that is wholly one number; None where it is not."""
    number = read_number(text)
    return None if number is None else number.value


def is_percent(text: str) -> bool:
    """Whether the text is a number in percent."""
    number = read_number(text)
    return number is not None and number.is_percent


def same_currency(one: Number, other: Number) -> bool:
    """Whether the two may be one amount: a currency sign may be missing, but not be another one."""
    return not (one.currency and other.currency) or one.currency == other.currency


def equal_in_percent(one: Number, other: Number) -> bool:
    """Whether one is in percent and the other is meant so: 50 % and 50."""
    percent, plain = (one, other) if one.is_percent else (other, one)
    return percent.is_percent and not plain.is_percent and percent.value * 100 == plain.value


def last_number(text: str) -> str | None:
    """The last number that stands in a text as digits (with sign, separators, fraction bar); None without one."""
    found = all_numbers(text)
    return found[-1] if found else None


def number_places(text: str) -> list[tuple[int, int]]:
    """Where the numbers stand in a text in plain characters, without a full stop behind them."""
    spans = (match.span() for match in _IN_TEXT.finditer(text))
    return [(start, stop - (text[stop - 1] == ".")) for start, stop in spans]


def all_numbers(text: str) -> list[str]:
    """The numbers that stand in a text as digits, in order."""
    return [match.group().rstrip(".") for match in _IN_TEXT.finditer(plain_characters(text))]


def _undressed(text: str) -> str:
    """Takes off what surrounds a number, and writes separators in one way."""
    text = _DRESSING.sub("", text).replace("{,}", ",").replace(r"\(", "").replace(r"\)", "")
    text = _THIN_SPACE.sub(" ", _FRACTION_COMMAND.sub(r"\\frac", text)).strip()
    text = text.removesuffix(".").rstrip()
    if len(text) > 2 and text[0] == text[-1] == "$" and text[-2] != "\\":
        text = text[1:-1].strip().removesuffix(".").rstrip()
    return text


def _without_currency(text: str) -> tuple[str, str]:
    match = _MONEY_BEFORE.match(text)
    if match:
        return match["sign"] + text[match.end() :], match["currency"][-1]
    match = _MONEY_BEHIND.search(text)
    return (text[: match.start()], match["currency"][-1]) if match else (text, "")


def _value(match: re.Match[str]) -> Fraction | None:
    groups = match.groupdict()
    if groups["decimal"] is not None:
        value: Fraction | None = _decimal(groups["decimal"]) * Fraction(10) ** _exponent(groups["exponent"])
    elif groups["over"] is not None:
        value = _quotient(groups["over"], groups["under"])
    elif groups["mixed"] is not None:
        value = _mixed(groups["mixed"], _quotient(groups["part"], groups["parts"]))
    elif groups["repeating"] is not None:
        value = _repeating(groups["repeating"])
    else:
        top = groups["top"] or groups["top1"] or groups["top2"]
        bottom = groups["bottom"] or groups["bottom1"] or groups["bottom2"] or groups["bottom3"]
        value = _mixed(groups["whole"] or "0", _quotient(top, bottom))
    return -value if value is not None and groups["sign"] == "-" else value


def _decimal(text: str) -> Fraction:
    text = text.replace(",", "").replace(" ", "").replace("'", "").removesuffix(".")
    return Fraction(text if text[0] != "." else "0" + text)


def _repeating(text: str) -> Fraction:
    r"""The value of `1.2\overline{34}`: k digits repeated behind m plain ones."""
    plain, digits = re.findall(r"[\d.]+", text)
    num_plain = len(plain.partition(".")[2])
    start = int(plain.replace(".", "") or "0")
    return Fraction(start * (10 ** len(digits) - 1) + int(digits), (10 ** len(digits) - 1) * 10**num_plain)


def _exponent(text: str | None) -> int:
    return int(re.sub(r"^\s*(?:[eE]|.*\^)|[{}\s]", "", text)) if text else 0


def _quotient(top: str, bottom: str) -> Fraction | None:
    under = _signed_decimal(bottom)
    return _signed_decimal(top) / under if under else None


def _signed_decimal(text: str) -> Fraction:
    return -_decimal(text[1:].strip()) if text.startswith("-") else _decimal(text)


def _mixed(whole: str, part: Fraction | None) -> Fraction | None:
    """A whole and a part of one; a "part" of one or more beside a whole is no mixed number."""
    if part is None or (whole != "0" and not 0 <= part < 1):
        return None
    return int(whole) + part
