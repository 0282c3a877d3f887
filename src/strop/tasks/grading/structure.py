r"""What an answer is made of: formulas in lists, sets, tuples, intervals, unions, matrices, ratios and relations.

    text --unified--> read --> Leaf | Solutions | Bracketed | SetOf | Union | Matrix | Ratio | Relation

`1 and 2`, `1, 2` and `\pm 1` are solutions, `(1,2)` is a tuple or an interval, `x=1` a relation. What has no structure
is a leaf: a formula, or text. Reading is bounded: at most MAX_DEPTH levels and MAX_PIECES pieces a level.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from strop.tasks.grading.evaluate import Value, evaluate
from strop.tasks.grading.expression import Expression, Num, UnreadableError
from strop.tasks.grading.latex import ROW_END, enclosed, normal_text, split_items, split_list, split_outside
from strop.tasks.grading.numbers import Number, read_number
from strop.tasks.grading.parse import parse_expression
from strop.tasks.grading.units import split_unit
from strop.tasks.grading.written_form import Form, written_form

MAX_DEPTH = 5
MAX_PIECES = 100

_JOINED = re.compile(r"\\text\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_RELATION = re.compile(r"\\(?:le|ge|ne|in|equiv|approx|to)(?![A-Za-z])|[=<>]")
_UNION = re.compile(r"\\cup(?![A-Za-z])")
_COLON = re.compile(r":")
_MATRIX = re.compile(
    r"\\begin\{(?P<kind>[pbBvV]?matrix|smallmatrix|array)\}(?:\{[lcr|]*\})?(?P<body>.*)\\end\{(?P=kind)\}"
)
_CASES = re.compile(r"(?:\\\{)?\s*\\begin\{cases\}([^&]*)\\end\{cases\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z\s.,'\-]*")
_SHORT_WORD = re.compile(r"a[mnst]|b[ey]|do|go|he|i[fnst]|m[ey]|no|o[fknr]|so|to|u[ps]|we")


@dataclass(frozen=True)
class Leaf:
    """A formula, a number with its unit, or text."""

    text: str

    @cached_property
    def normal(self) -> str:
        """The text without spaces."""
        return normal_text(self.text)

    @cached_property
    def is_words(self) -> bool:
        """Whether it is plain language, and not a formula such as `x-y` or `xy`: letters, some of them side by side."""
        text = re.sub(r"\\text\{([^{}]*)\}", r"\1", self.text).strip()
        if _WORDS.fullmatch(text) is None:
            return False
        runs = re.findall(r"[A-Za-z]+", text)
        longest = max(map(len, runs))
        if longest != 2 or "-" in text:
            return longest > 2
        return any(_SHORT_WORD.fullmatch(run) or (len(run) == 2 and not run.islower()) for run in runs)

    @cached_property
    def number(self) -> Number | None:
        """The number that the leaf wholly is, without its unit."""
        return read_number(self._parts[0])

    @property
    def unit(self) -> str:
        """The unit of a number or formula; empty where there is none."""
        return self._parts[1]

    @cached_property
    def expression(self) -> Expression | None:
        """The formula, without its unit; None for text that is none."""
        if self.number is not None:
            return Num(self.number.value)
        if self.is_words:
            return None
        try:
            return parse_expression(self._parts[0])
        except UnreadableError:
            return None

    @cached_property
    def form(self) -> Form | None:
        """The form in which the formula was written."""
        return None if self.expression is None else written_form(self.expression)

    @cached_property
    def value(self) -> Value | None:
        """The value of the formula; None where it has none, or costs too much."""
        if self.expression is None:
            return None
        try:
            return evaluate(self.expression)
        except UnreadableError:
            return None

    @cached_property
    def _parts(self) -> tuple[str, str]:
        number = read_number(self.text)
        if number is not None:
            return self.text, number.currency
        return ("", "") if self.is_words else split_unit(self.text)


@dataclass(frozen=True)
class Solutions:
    """Answers beside each other, in no order."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True)
class SetOf:
    """A set, in no order."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True)
class Union:
    """Sets or intervals joined, in no order."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True)
class Bracketed:
    """A tuple, a point or an interval: ordered, and the brackets count."""

    opening: str
    items: "tuple[Node, ...]"
    closing: str


@dataclass(frozen=True)
class Matrix:
    """Rows of a matrix; `is_determinant` where bars enclose it."""

    rows: "tuple[tuple[Node, ...], ...]"
    is_determinant: bool


@dataclass(frozen=True)
class Ratio:
    """Numbers joined by colons."""

    items: "tuple[Node, ...]"
    text: str


@dataclass(frozen=True)
class Relation:
    """Sides joined by signs such as `=` and `<`."""

    sides: "tuple[Node, ...]"
    signs: tuple[str, ...]
    texts: tuple[str, ...]
    """The sides as text."""


Node = Leaf | Solutions | SetOf | Union | Bracketed | Matrix | Ratio | Relation


def read_structure(text: str, depth: int = 0) -> Node:
    """Reads an answer in one spelling (`latex.unified`)."""
    text = text.strip()
    if depth >= MAX_DEPTH or not text or read_number(text) is not None:
        return Leaf(text)
    for read in (_solutions, _relation, _union, _matrix, _bracketed, _ratio):
        node = read(text, depth + 1)
        if node is not None:
            return node
    return Leaf(text)


def _read_all(texts: list[str], depth: int) -> "tuple[Node, ...] | None":
    """The pieces; None where one is empty or there are too many."""
    if len(texts) > MAX_PIECES or not all(texts):
        return None
    return tuple(read_structure(text, depth) for text in texts)


def _solutions(text: str, depth: int) -> Node | None:
    cases = _CASES.fullmatch(text)
    if cases:
        text = cases[1].strip().removesuffix(ROW_END.strip()).replace(ROW_END.strip(), ",")
    texts = split_list(_JOINED.sub(",", text))
    texts = [choice for part in texts if part for choice in _signs_chosen(part)]
    if len(texts) < 2:
        return None
    items = _read_all(texts, depth)
    return None if items is None else Solutions(items)


def _signs_chosen(text: str) -> list[str]:
    r"""Both readings of a text with `\pm`; a text without it alone."""
    if r"\pm" not in text:
        return [text]
    return [
        re.sub(r"\\pm(?![A-Za-z])", upper, re.sub(r"\\mp(?![A-Za-z])", lower, text)).strip().removeprefix("+")
        for upper, lower in (("+", "-"), ("-", "+"))
    ]


def _relation(text: str, depth: int) -> Node | None:
    texts, signs = split_outside(text, _RELATION)
    if not signs or len(texts) > MAX_PIECES:
        return None
    sides = _read_all(texts, depth)
    return None if sides is None else Relation(sides, tuple(signs), tuple(texts))


def _union(text: str, depth: int) -> Node | None:
    texts, signs = split_outside(text, _UNION)
    items = _read_all(texts, depth) if signs else None
    return None if items is None else Union(items)


def _ratio(text: str, depth: int) -> Node | None:
    texts, signs = split_outside(text, _COLON)
    items = _read_all(texts, depth) if signs else None
    return None if items is None else Ratio(items, normal_text(text))


def _matrix(text: str, depth: int) -> Node | None:
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    lines = [line for line in match["body"].split(ROW_END.strip()) if line.strip()]
    rows = [_read_all([cell.strip() for cell in line.split("&")], depth) for line in lines[:MAX_PIECES]]
    if not rows or any(row is None for row in rows):
        return None
    return Matrix(tuple(row for row in rows if row is not None), match["kind"].startswith(("v", "V")))


def _bracketed(text: str, depth: int) -> Node | None:
    parts = enclosed(text)
    if parts is None:
        return None
    opening, inside, closing = parts
    if opening == "(" and closing == ")" and inside.startswith(r"\begin"):
        return read_structure(inside, depth)
    texts = split_items(inside)
    if opening == "(" and closing == ")" and len(texts) == 1:
        return None
    items = _read_all(texts, depth)
    if items is None:
        return None
    if opening == "[" and closing == "]" and items and all(isinstance(item, Bracketed) for item in items):
        return _nested_rows(items)
    return SetOf(items) if opening == r"\{" else Bracketed(opening, items, closing)


def _nested_rows(items: "tuple[Node, ...]") -> Node:
    """`[[1,2],[3,4]]` is a matrix."""
    rows = tuple(item.items for item in items if isinstance(item, Bracketed) and item.opening == "[")
    return Matrix(rows, is_determinant=False) if len(rows) == len(items) else Bracketed("[", items, "]")


def as_constant(node: Node) -> Fraction | None:
    """The number that a node is; None where it is none."""
    return node.number.value if isinstance(node, Leaf) and node.number is not None else None
