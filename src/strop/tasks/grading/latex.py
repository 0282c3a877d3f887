r"""Mathematical text in one spelling, so that answers can be compared piece by piece.

`unified` writes what looks the same in one way (`\dfrac` and `\frac`, `\left(` and `(`, `\leq` and `\le`) and leaves
the spaces; `normal_text` also takes off spaces and `\text{...}`, for answers that are compared as they stand. The
splitting functions cut outside all brackets. Nothing here evaluates anything, and all work is linear.
"""

import re

from strop.tasks.grading.characters import plain_characters

MAX_CHARACTERS = 1000
"""Longer answers are not compared: no gold answer is that long, and the work stays bounded."""

ROW_END = r"\cr "
"""How the end of a matrix row is written in one spelling."""

_OPENING, _CLOSING = "([{", ")]}"
_END = r"(?![A-Za-z])"
_SPELLINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\\\(?:\[[^\]]*\])?", r"\\cr "),
        (r"\\(?:left|right|displaystyle|textstyle|limits|[Bb]igg?[lrm]?)" + _END + r"\.?", ""),
        (r"\\[dtc]frac" + _END, r"\\frac"),
        (
            r"\\(?:text(?:bf|rm|it|sf|tt|normal)?|math(?:rm|bf|it|sf|tt)|mbox|hbox|operatorname\*?|textbf|boldsymbol|bm)"
            r"\s*\{([^{}]*)\}",
            r"\\text{\1}",
        ),
        (r"\\!", ""),
        (r"\\[,;:> ]|~|\\q?quad" + _END + r"|\\(?:thin|med|thick)space" + _END, " "),
        (r"\\\(|\\\)|\\\[|\\\]|(?<!\\)\$", ""),
        (r"<=|\\leq(?:slant)?" + _END, r"\\le "),
        (r">=|\\geq(?:slant)?" + _END, r"\\ge "),
        (r"!=|\\neq" + _END, r"\\ne "),
        (r"\\lt" + _END, "<"),
        (r"\\gt" + _END, ">"),
        (r"\\(?:cdot|times|ast)" + _END, "*"),
        (r"\\div" + _END, "/"),
        (r"\*\*", "^"),
        (r"\\infin" + _END, r"\\infty"),
        (r"\\lbrace" + _END, r"\\{"),
        (r"\\rbrace" + _END, r"\\}"),
        (r"\\langle" + _END, "("),
        (r"\\rangle" + _END, ")"),
        (r"\\[lr]?vert" + _END + r"|\\mid" + _END + r"|\\\|", "|"),
        (r"\\varnothing" + _END + r"|\\\{\s*\\\}", r"\\emptyset"),
        (r"\^\s*\{\s*\\circ\s*\}|\\degrees?" + _END, r"^\\circ"),
        (r"\{,\}", ","),
        (r"\s+", " "),
    )
)
_PACKED = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\text\{([^{}]*)\}", r"\1"),
        (r"\\frac ?(\d) ?(\d)", r"\\frac{\1}{\2}"),
        (r"\\sqrt ?([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r"([\^_])\{([0-9A-Za-z])\}", r"\1\2"),
        (r"\\pmod ?(\d+|[A-Za-z])", r"\\pmod{\1}"),
        # A space that keeps numbers apart stays: `1 1/2` is not `11/2`, and `1, 200` is not `1,200`.
        (r"(?<=\d) (?=\d)|(?<=\d,) (?=\d{3}(?!\d))", "\N{NO-BREAK SPACE}"),
        (r" ", ""),
    )
)


def unified(text: str) -> str:
    """The text in one spelling, without a full stop at its end."""
    text = plain_characters(text).strip()
    if len(text) > 4 and text.startswith("**") and text.endswith("**"):
        text = text[2:-2]
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return text.strip().removesuffix(".").rstrip()


def normal_text(text: str) -> str:
    """A text in one spelling without spaces, but for those that keep numbers apart."""
    for pattern, replacement in _PACKED:
        text = pattern.sub(replacement, text)
    return text.replace("\N{NO-BREAK SPACE}", " ")


def split_outside(text: str, separator: re.Pattern[str]) -> tuple[list[str], list[str]]:
    r"""Cuts at the separators outside all brackets; returns the parts, stripped, and the separators.

    `\{` counts as a bracket as `{` does.
    """
    parts, separators = [], []
    start = place = depth = 0
    while place < len(text):
        match = separator.match(text, place) if depth == 0 else None
        if match and match.end() > place:
            parts.append(text[start:place].strip())
            separators.append(match.group().strip())
            start = place = match.end()
            continue
        depth += (text[place] in _OPENING) - (text[place] in _CLOSING)
        place += 1
    return [*parts, text[start:].strip()], separators


_COMMA = re.compile(r",|;")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")


def split_list(text: str) -> list[str]:
    """Cuts at the commas and semicolons outside all brackets; commas that separate thousands are not cut."""
    kept = {place for run in _THOUSANDS.finditer(text) for place in range(run.start(), run.end())}
    parts, start, depth = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0 and character in ",;" and place not in kept:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def split_items(text: str) -> list[str]:
    """Cuts what stands inside brackets: there `1,200` is two items, unless other commas have a space behind them."""
    if re.search(r", ", text):
        return split_list(text)
    return split_outside(text, _COMMA)[0]


def enclosed(text: str) -> tuple[str, str, str] | None:
    r"""Splits a bracketed text into (opening, inside, closing) where one pair (`(`, `[`, `\{`) spans all of it.

    Intervals may open and close with different brackets. A plain `{` counts as `\{` where a comma stands inside.
    """
    for opening, closings in (("(", ")]"), ("[", "])"), (r"\{", "}"), ("{", "}")):
        if not text.startswith(opening) or text[-1] not in closings:
            continue
        closing = r"\}" if opening == r"\{" else text[-1]
        inside = text[len(opening) : -len(closing)]
        if not text.endswith(closing) or len(text) < len(opening) + len(closing) or not _is_balanced(inside):
            continue
        if opening == "{":
            return (r"\{", inside.strip(), r"\}") if "," in inside else None
        return opening, inside.strip(), closing
    return None


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth < 0:
            return False
    return depth == 0
