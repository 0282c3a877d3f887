"""What a formula is made of: six kinds of pieces.

A difference is a sum with a factor -1, a quotient a product with a power -1, a root a power with a fraction.
"""

from dataclasses import dataclass
from fractions import Fraction


class UnreadableError(ValueError):
    """Text that is no formula, or one that would take too much work. It is compared as text instead."""


@dataclass(frozen=True, slots=True)
class Num:
    """An exact number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Sym:
    """A letter, a word or a constant."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms added up."""

    terms: "tuple[Expression, ...]"


@dataclass(frozen=True, slots=True)
class Product:
    """Factors multiplied."""

    factors: "tuple[Expression, ...]"


@dataclass(frozen=True, slots=True)
class Power:
    """A base raised to an exponent."""

    base: "Expression"
    exponent: "Expression"


@dataclass(frozen=True, slots=True)
class Call:
    """A function, such as a sine or a factorial, of its arguments."""

    name: str
    arguments: "tuple[Expression, ...]"


Expression = Num | Sym | Sum | Product | Power | Call

MINUS_ONE = Num(Fraction(-1))


def negated(expression: Expression) -> Expression:
    """The expression times -1."""
    return Num(-expression.value) if isinstance(expression, Num) else Product((MINUS_ONE, expression))


def quotient(top: Expression, bottom: Expression) -> Expression:
    """`top` divided by `bottom`."""
    return Product((top, Power(bottom, MINUS_ONE)))


def root(expression: Expression, degree: int = 2) -> Expression:
    """The root of that degree; raises UnreadableError for a degree of 0."""
    if degree == 0:
        raise UnreadableError("a root has no degree 0")
    return Power(expression, Num(Fraction(1, degree)))
