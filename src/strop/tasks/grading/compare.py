"""Whether two answers are equal.

STRICT compares value and kind: numbers by value, formulas by their written form, pieces of structures in the order that
the structure has. LENIENT adds the conventions of maths data sets: a unit or `x =` may be missing on one side, 50 % is
also 50, formulas are equal after expansion, equations after scaling, `x > 3` is an interval, a set a list.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product, starmap

from strop.tasks.grading.doubt import COMPARISONS, NEGATIONS, NUMBER_WORDS
from strop.tasks.grading.evaluate import Value, evaluate, same_value
from strop.tasks.grading.expression import Expression, UnreadableError
from strop.tasks.grading.grade import GradeMode
from strop.tasks.grading.numbers import equal_in_percent
from strop.tasks.grading.parse import FUNCTIONS, GREEK
from strop.tasks.grading.polynomial import proportion
from strop.tasks.grading.structure import (
    Bracketed,
    Leaf,
    Matrix,
    Node,
    Ratio,
    Relation,
    SetOf,
    Solutions,
    Union,
    as_constant,
)

_MIRRORED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_CURRENCIES = frozenset("$€£¥₹")
_LETTERS = "|".join(sorted(GREEK - {"infty", "emptyset", "pi"}))
_NAME = re.compile(
    rf"(?:[A-Za-z]|\\(?:{_LETTERS})|[A-Z]{{2,4}}|\\angle ?[A-Z]+|\\overline\{{[A-Z]+\}})"
    r"(?:_(?:\w|\{\w+\}))?'*(?:\([A-Za-z](?:, ?[A-Za-z])*\))?|\([A-Za-z](?:, ?[A-Za-z])+\)"
    r"|[fghpqFGHPQ]\(-?\d+\)|\\frac ?\{d ?[A-Za-z]\} ?\{d ?[A-Za-z]\}|d[A-Za-z]/d[A-Za-z]"
)
_WORDS = re.compile(r"(?:(?:the )?value of )?(?:[A-Za-z]|[A-Za-z]{3,}(?: [A-Za-z]{2,}){0,5})")
_NO_NAMES = NEGATIONS | NUMBER_WORDS | COMPARISONS | FUNCTIONS | {"minus", "negative", "opposite", "inverse", "root"}
_AS_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_ALL_REALS = frozenset({r"\mathbb{r}", r"\mathbbr", "allrealnumbers", "allreals"})
_TIME = re.compile(r"\d{1,2}:[0-5]\d")

LastResort = Callable[[str, str], bool]
"""From two formulas as text to whether they are equal; asked where nothing here can tell."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rules by which two answers are compared."""

    mode: GradeMode
    last_resort: LastResort | None = None
    """Asked in LENIENT mode about formulas that differ here in pieces that are not worked out."""

    @property
    def is_lenient(self) -> bool:
        """Whether the conventions of data sets count."""
        return self.mode is GradeMode.LENIENT

    def equal(self, answer: Node, gold: Node) -> bool:
        """Whether the answer equals the gold answer."""
        if type(answer) is type(gold) and self._equal_kind(answer, gold):
            return True
        if not self.is_lenient:
            return False
        return self._equal_across(answer, gold) or (_is_all_reals(answer) and _is_all_reals(gold))

    def _equal_kind(self, answer: Node, gold: Node) -> bool:
        match answer, gold:
            case Leaf(), Leaf():
                return self._equal_leaves(answer, gold)
            case (Solutions() | SetOf() | Union(), Solutions() | SetOf() | Union()):
                return self._unordered(answer.items, gold.items)
            case Bracketed(), Bracketed():
                brackets = (answer.opening, answer.closing) == (gold.opening, gold.closing)
                return brackets and self._ordered(answer.items, gold.items)
            case Matrix(), Matrix():
                same = answer.is_determinant == gold.is_determinant and len(answer.rows) == len(gold.rows)
                return same and all(map(self._ordered, answer.rows, gold.rows))
            case Ratio(), Ratio():
                return self._ordered(answer.items, gold.items) or (self.is_lenient and _same_ratio(answer, gold))
            case Relation(), Relation():
                return self._equal_relations(answer, gold)
        return False

    def _ordered(self, answers: Sequence[Node], golds: Sequence[Node]) -> bool:
        return len(answers) == len(golds) and all(map(self._equal_pieces, answers, golds))

    def _equal_pieces(self, answer: Node, gold: Node) -> bool:
        """Whether two pieces of structures are equal: there a set with one element is not that element."""
        return isinstance(answer, SetOf) == isinstance(gold, SetOf) and self.equal(answer, gold)

    def _unordered(self, answers: Sequence[Node], golds: Sequence[Node]) -> bool:
        if len(answers) != len(golds):
            return False
        left = list(golds)
        for answer in answers:
            place = next((place for place, gold in enumerate(left) if self._equal_pieces(answer, gold)), None)
            if place is None:
                return False
            del left[place]
        return True

    def _equal_leaves(self, answer: Leaf, gold: Leaf) -> bool:
        if answer.normal == gold.normal:
            return True
        if not self._equal_units(answer.unit, gold.unit) or _is_percent_beside_unit(answer, gold):
            return False
        if answer.number is not None and gold.number is not None:
            return answer.number.value == gold.number.value or (
                self.is_lenient and equal_in_percent(answer.number, gold.number)
            )
        if answer.form is not None and answer.form == gold.form:
            return True
        return self.is_lenient and self._equal_in_value(answer, gold)

    def _equal_units(self, answer: str, gold: str) -> bool:
        """Whether the units agree: a currency sign may be missing on one side, LENIENT any unit but a base."""
        if answer == gold:
            return True
        if answer and gold:
            return False
        unit = answer or gold
        return unit in _CURRENCIES or (self.is_lenient and not unit.startswith("base "))

    def _equal_in_value(self, answer: Leaf, gold: Leaf) -> bool:
        if answer.is_words or gold.is_words:
            return answer.normal.casefold() == gold.normal.casefold()
        if answer.value is None or gold.value is None:
            return self._asked(answer, gold, can_ask=answer.expression is None or gold.expression is None)
        if same_value(answer.value, gold.value):
            return True
        return self._asked(answer, gold, can_ask=not (answer.value.is_decided and gold.value.is_decided))

    def _asked(self, answer: Leaf, gold: Leaf, *, can_ask: bool) -> bool:
        return can_ask and self.last_resort is not None and self.last_resort(answer.text, gold.text)

    def _equal_relations(self, answer: Relation, gold: Relation) -> bool:
        if answer.signs == gold.signs and self._ordered(answer.sides, gold.sides):
            return True
        mirrored = tuple(_MIRRORED.get(sign, sign) for sign in reversed(gold.signs))
        if r"\in" not in mirrored and answer.signs == mirrored and self._ordered(answer.sides, gold.sides[::-1]):
            return True
        return self.is_lenient and _equal_after_scaling(answer, gold)

    def _equal_across(self, answer: Node, gold: Node) -> bool:
        """Compares two kinds that the conventions of data sets take for one."""
        kinds = {type(answer), type(gold)}
        if len(kinds) == 1:
            return False
        if Relation in kinds:
            pairs = product(_readings(answer, beside=gold), _readings(gold, beside=answer))
            return any(starmap(self.equal, pairs))
        if kinds == {Solutions, Union}:
            intervals = _intervals(answer)
            return bool(intervals) and self._unordered(intervals, _intervals(gold))
        if SetOf in kinds:
            return self._unordered(_elements(answer), _elements(gold))
        if kinds == {Ratio, Leaf}:
            return _ratio_is(answer, gold) or _ratio_is(gold, answer)
        components = _components(answer)
        return bool(components) and self._ordered(components, _components(gold))


def _is_all_reals(node: Node) -> bool:
    match node:
        case Leaf():
            return node.normal.casefold() in _ALL_REALS
        case Bracketed("(", (Leaf() as start, Leaf() as end), ")"):
            return start.normal == r"-\infty" and end.normal.removeprefix("+") == r"\infty"
    return False


def _intervals(node: Node) -> Sequence[Node]:
    """The parts of a union, and the intervals of `x < 2 or x > 3`, which must be of one name; none of others."""
    if isinstance(node, Union):
        return node.items
    relations = [item for item in node.items if isinstance(item, Relation)] if isinstance(node, Solutions) else []
    names = {text for relation in relations for text in relation.texts if _is_name(text)}
    intervals = [reading for relation in relations for reading in _sides_alone(relation)]
    is_whole = isinstance(node, Solutions) and len(intervals) == len(node.items) and len(names) == 1
    return intervals if is_whole and all(isinstance(interval, Bracketed) for interval in intervals) else ()


def _elements(node: Node) -> Sequence[Node]:
    return node.items if isinstance(node, SetOf | Solutions) else (node,)


def _components(node: Node) -> Sequence[Node]:
    """What stands in order in a point, in a matrix with one column or row, and in `x = 5, y = 6`; none of others."""
    match node:
        case Bracketed(opening="(", closing=")"):
            return node.items
        case Matrix():
            return _vector(node)
        case Solutions():
            return _values_by_name(node)
    return ()


def _values_by_name(solutions: Solutions) -> Sequence[Node]:
    """The values of `x = 5, y = 6`, whose names must be letters in the order of the alphabet; none of any others."""
    equations = [item for item in solutions.items if isinstance(item, Relation) and item.signs == ("=",)]
    names = [equation.texts[0] for equation in equations]
    if len(equations) != len(solutions.items) or names != sorted(set(names)):
        return ()
    are_letters = all(len(name) == 1 and name.isalpha() for name in names)
    return tuple(equation.sides[1] for equation in equations) if are_letters else ()


def _vector(matrix: Matrix) -> Sequence[Node]:
    """The entries of a matrix with one column or one row; none of any other."""
    if all(len(row) == 1 for row in matrix.rows):
        return tuple(row[0] for row in matrix.rows)
    return matrix.rows[0] if len(matrix.rows) == 1 else ()


def _is_percent_beside_unit(answer: Leaf, gold: Leaf) -> bool:
    """Whether one is in percent and the other has a unit: only one of the two may be missing."""
    if answer.unit == gold.unit or _CURRENCIES & {answer.unit, gold.unit}:
        return False
    return any(leaf.number is not None and leaf.number.is_percent for leaf in (answer, gold))


def _same_ratio(answer: Ratio, gold: Ratio) -> bool:
    """Whether two ratios are proportional; times of day are not scaled."""
    answers, golds = _constants(answer), _constants(gold)
    if not answers or len(answers) != len(golds) or _TIME.fullmatch(gold.text):
        return False
    return all(one * golds[0] == other * answers[0] for one, other in zip(answers, golds, strict=True))


def _constants(ratio: Ratio) -> list[Fraction]:
    """The terms of a ratio, none of them 0; empty where one is no such number."""
    constants = [as_constant(item) for item in ratio.items]
    return [constant for constant in constants if constant] if all(constants) else []


def _ratio_is(ratio: Node, leaf: Node) -> bool:
    """Whether a ratio of two terms is the number, without a unit, that a leaf is."""
    if not isinstance(ratio, Ratio) or not isinstance(leaf, Leaf):
        return False
    constants = _constants(ratio)
    if len(constants) != 2 or leaf.number is None or leaf.unit or _TIME.fullmatch(ratio.text):
        return False
    return constants[0] / constants[1] == leaf.number.value


def _readings(node: Node, beside: Node) -> list[Node]:
    r"""What else a relation may say: the value of `x = 5`, the set of `x \in A`, the interval of `a < x \le b`.

    Beside several solutions, `(x, y) = (5, 6)` says `x = 5, y = 6`. What is no relation says itself.
    """
    if not isinstance(node, Relation):
        return [node]
    equations = _equations(node) if isinstance(beside, Solutions) else None
    return _sides_alone(node) if equations is None else [equations]


def _equations(relation: Relation) -> Solutions | None:
    """The equations that one between a tuple of names and one of values stands for; None of any other relation."""
    match relation.sides:
        case Bracketed("(", names, ")"), Bracketed("(", values, ")") if relation.signs == ("=",):
            texts = [name.text for name in names if isinstance(name, Leaf)]
            if len(names) == len(values) and all(map(_is_name, texts)):
                pairs = zip(names, values, texts, strict=True)
                return Solutions(tuple(Relation((name, value), ("=",), (text, "")) for name, value, text in pairs))
    return None


def _sides_alone(relation: Relation) -> list[Node]:
    names = [_is_name(text) for text in relation.texts]
    if set(relation.signs) <= {"=", r"\in"} and names[0]:
        return [relation.sides[-1]]
    if relation.signs == ("=",) and names[1]:
        return [relation.sides[0]]
    if set(relation.signs) == {"="} and _is_sum_done(relation.sides):
        return [relation.sides[-1]]
    interval = _interval(relation, names)
    return [] if interval is None else [interval]


def _is_sum_done(sides: Sequence[Node]) -> bool:
    """Whether equal numbers stand on all sides, as in `2 + 3 = 5`."""
    values = [side.value for side in sides if isinstance(side, Leaf) and not side.unit]
    constants = {None if value is None else value.constant for value in values}
    return len(values) == len(sides) and len(constants) == 1 and None not in constants


def _is_name(text: str) -> bool:
    r"""Whether a side is the name of one unknown, `x`, `f(x)` or "area", and not such as `\sin x` or "not x"."""
    text = _AS_TEXT.sub(r"\1", text).strip()
    if _NAME.fullmatch(text):
        return True
    return _WORDS.fullmatch(text) is not None and _NO_NAMES.isdisjoint(text.lower().split())


def _interval(relation: Relation, names: list[bool]) -> Bracketed | None:
    signs, sides = relation.signs, relation.sides
    if len(sides) == 2 and names[1]:
        signs, sides, names = (_MIRRORED.get(signs[0], ""),), sides[::-1], names[::-1]
    if len(sides) == 2 and names[0] and signs[0] in _MIRRORED:
        if signs[0] in ("<", r"\le"):
            return Bracketed("(", (Leaf(r"-\infty"), sides[1]), ")" if signs[0] == "<" else "]")
        return Bracketed("(" if signs[0] == ">" else "[", (sides[1], Leaf(r"\infty")), ")")
    if len(sides) == 3 and names[1]:
        if set(signs) <= {">", r"\ge"}:
            signs, sides = tuple(_MIRRORED[sign] for sign in reversed(signs)), sides[::-1]
        if set(signs) <= {"<", r"\le"}:
            return Bracketed("(" if signs[0] == "<" else "[", (sides[0], sides[2]), ")" if signs[1] == "<" else "]")
    return None


def _equal_after_scaling(answer: Relation, gold: Relation) -> bool:
    """Whether two relations say the same of the difference of their sides, but for a factor that is a number."""
    answer_value, gold_value = _difference(answer), _difference(gold)
    if answer_value is None or gold_value is None:
        return False
    factor = proportion(answer_value.top, gold_value.top)
    answer_sign, gold_sign = answer.signs[0], gold.signs[0]
    if factor is None or answer_value.bottom != gold_value.bottom:
        return False
    return answer_sign == (gold_sign if factor > 0 else _MIRRORED.get(gold_sign, gold_sign))


def _difference(relation: Relation) -> Value | None:
    """Left side minus right side of a relation between two formulas."""
    formulas: list[Expression] = []
    for side in relation.sides:
        if not isinstance(side, Leaf) or side.expression is None or side.unit:
            return None
        formulas.append(side.expression)
    if len(formulas) != 2 or relation.signs[0] == r"\in":
        return None
    try:
        return evaluate(formulas[0]).minus(evaluate(formulas[1]))
    except UnreadableError:
        return None
