r"""Mathematical text in one spelling, so that answers can be compared piece by piece.

`normal_text` takes off what only changes how a formula looks (spaces, `\left`, `\text{...}` around words, `$`), and
`split_list` cuts at the commas that stand outside all brackets. Nothing here evaluates anything.
"""

import re
from typing import NamedTuple

MAX_CHARACTERS = 1000
"""Longer answers are not compared: no gold answer is that long, and the work stays bounded."""

_OPENING, _CLOSING = "([{", ")]}"
_SPELLINGS = (
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\(?:left|right|displaystyle|[Bb]igg?[lr]?)(?![A-Za-z])"), ""),
    (re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox)\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\[!,;:> ]|~|\\q?quad(?![A-Za-z])|(?<!\\)\$"), ""),
    (re.compile(r"\\\(|\\\)|\\\[|\\\]"), ""),
    (re.compile(r"\\leq(?![A-Za-z])"), r"\\le"),
    (re.compile(r"\\geq(?![A-Za-z])"), r"\\ge"),
    (re.compile(r"\\neq(?![A-Za-z])"), r"\\ne"),
    (re.compile(r"\\(?:cdot|times)(?![A-Za-z])"), "*"),
    (re.compile(r"\\infin(?:ty)?(?![A-Za-z])"), r"\\infty"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\sqrt\s*([0-9A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"\^\{([0-9A-Za-z])\}"), r"^\1"),
    (re.compile(r"\^\{\\circ\}"), r"^\\circ"),
    # A space that keeps numbers apart stays: `1 1/2` is not `11/2`, and `1, 200` is not `1,200`.
    (re.compile(r"(?<=\d)\s+(?=\d)|(?<=\d,)\s+(?=\d{3}(?!\d))"), "\N{NO-BREAK SPACE}"),
    (re.compile(r"[^\S\N{NO-BREAK SPACE}]+"), ""),
)
_UNIT = re.compile(
    r"(?P<rest>.*\d\}*)\s*(?:\\[, ]|~)*\s*(?:\\(?:text|textrm|mathrm|mbox)\{\s*(?P<name>[A-Za-z][^{}]*?)\s*\}"
    r"(?P<power>(?:\^\{?\d\}?)?)|(?P<degrees>\^\{?\\circ\}?|\\degree))\s*\.?",
    re.DOTALL,
)


class Quantity(NamedTuple):
    """A value and its unit, both as text."""

    value: str
    unit: str
    """Empty where there is none."""


def normal_text(text: str) -> str:
    """The text in one spelling, without spaces and without a full stop at its end."""
    text = text.replace("\N{MINUS SIGN}", "-").replace("\N{NO-BREAK SPACE}", " ").strip().removesuffix(".")
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return text.replace("\N{NO-BREAK SPACE}", " ")


def split_unit(text: str) -> Quantity:
    r"""Splits off a unit written as text behind a number, such as `10\text{ cm}` or `30^\circ`."""
    match = _UNIT.fullmatch(text.strip())
    if match is None:
        return Quantity(text, "")
    unit = "degrees" if match["degrees"] else match["name"].strip().lower() + match["power"].strip("^{}")
    return Quantity(match["rest"], unit)


def split_list(text: str) -> list[str]:
    r"""Cuts at the commas (or semicolons) outside all brackets; thousands separators are not cut.

    `\{` counts as a bracket too, so the elements of a set are not cut.
    """
    parts = [""]
    depth = 0
    for place, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if character in ",;" and depth == 0 and not _is_thousands_separator(text, place):
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def enclosed(text: str) -> tuple[str, str, str] | None:
    r"""Splits a bracketed text into (opening, inside, closing) where one pair (`(`, `[`, `\{`) spans all of it.

    Intervals may open and close with different brackets.
    """
    for opening, closings in (("(", ")]"), ("[", "])"), (r"\{", "}")):
        if not text.startswith(opening) or text[-1] not in closings:
            continue
        closing = r"\}" if opening == r"\{" else text[-1]
        inside = text[len(opening) : -len(closing)]
        if text.endswith(closing) and len(text) >= len(opening) + len(closing) and _is_balanced(inside):
            return opening, inside, closing
    return None


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth < 0:
            return False
    return depth == 0


def _is_thousands_separator(text: str, place: int) -> bool:
    """Whether digits stand before the comma, exactly three behind it, and no space follows."""
    return bool(
        text[place] == ","
        and re.search(r"(?<![\d.])\d{1,3}(?:,\d{3})*$", text[max(0, place - 40) : place])
        and re.match(r"\d{3}(?!\d)", text[place + 1 : place + 5])
    )
