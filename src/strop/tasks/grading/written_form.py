r"""The form in which a formula was written: equal for two formulas that differ in spelling and order only.

Terms and factors have no order, `\frac{x}{2}` is `\frac12 x`, and a number or a square root of one has its value:
`\frac24` is `\frac12`, `\sqrt8` is `2\sqrt2`, `\frac{1}{\sqrt2}` is `\frac{\sqrt2}{2}`. Nothing is worked out: `2+3` is
not 5, nor is `5*1`, `\sqrt{16}` not 4, `(x+1)^2` not `x^2+2x+1`, for a question may ask for just that work.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from strop.tasks.grading.expression import MINUS_ONE, Call, Expression, Num, Power, Product, Sum, Sym
from strop.tasks.grading.factors import without_squares

Form = tuple[Any, ...]
"""Nested tuples; equal forms are the same formula."""

_HALF = Fraction(1, 2)
_MAX_ROOT = 10**12


def written_form(expression: Expression) -> Form:
    """The form of a formula."""
    match expression:
        case Num(value):
            return ("number", value)
        case Sym(name):
            return ("name", name)
        case Sum():
            return ("sum", *_sorted(written_form(term) for term in _flat_terms(expression)))
        case Product() | Power():
            return _Factors().filled(expression).form()
        case Call(name, arguments):
            return (name, *(written_form(argument) for argument in arguments))


def _sorted(forms: Iterator[Form]) -> list[Form]:
    return sorted(forms, key=repr)


def _flat_terms(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Sum):
        for term in expression.terms:
            yield from _flat_terms(term)
    else:
        yield expression


@dataclass
class _Side:
    """What stands above or below the bar."""

    numbers: list[Fraction] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)


@dataclass
class _Factors:
    """The factors of a product, sorted into what has a value and what has not."""

    above: _Side = field(default_factory=_Side)
    below: _Side = field(default_factory=_Side)
    is_negative: bool = False

    def filled(self, expression: Expression) -> "_Factors":
        """Takes in a formula as a factor above the bar."""
        self._add(expression, self.above, self.below)
        return self

    def _add(self, expression: Expression, side: _Side, other: _Side) -> None:
        match expression:
            case Num(value):
                self.is_negative ^= value < 0
                if abs(value) != 1:
                    side.numbers.append(abs(value))
            case Product(factors):
                side.numbers += [Fraction(1)] * _num_ones(factors)
                for factor in factors:
                    self._add(factor, side, other)
            case Power(base, Num(exponent)) if exponent < 0:
                self._add(base if exponent == -1 else Power(base, Num(-exponent)), other, side)
            case Power(base, Num(exponent)) if exponent == 1:
                self._add(base, side, other)
            case Power(Num(value), Num(exponent)) if exponent == _HALF and _is_surd(value):
                side.roots.append(int(value))
            case Power(base, exponent):
                side.forms.append(("power", written_form(base), written_form(exponent)))
            case _:
                side.forms.append(written_form(expression))

    def form(self) -> Form:
        """The product's form; a coefficient, or a root, written once above and once below the bar is one number."""
        above, below = self.above.forms, self.below.forms
        coefficient = Fraction(-1 if self.is_negative else 1)
        numbers, roots = (self.above.numbers, self.below.numbers), (self.above.roots, self.below.roots)
        if max(map(len, numbers)) <= 1 and all(self.below.numbers):
            coefficient *= Fraction(*numbers[0]) if numbers[0] else 1
            coefficient /= Fraction(*numbers[1]) if numbers[1] else 1
            coefficient, inside = _root_value(coefficient, *roots)
        else:
            above = [*above, *(("number", value) for value in numbers[0])]
            below = [*below, *(("number", value) for value in numbers[1])]
            inside = None
        if inside is None:
            above = [*above, *(("root", value) for value in roots[0])]
            below = [*below, *(("root", value) for value in roots[1])]
        elif inside != 1:
            above = [*above, ("root", inside)]
        if not above and not below:
            return ("number", coefficient)
        if coefficient == 1 and len(above) == 1 and not below:
            return above[0]
        return ("product", coefficient, tuple(sorted(above, key=repr)), tuple(sorted(below, key=repr)))


def _num_ones(factors: tuple[Expression, ...]) -> int:
    """How many factors 1 or -1 are written beside another number; the top of a fraction, as in `1/2*3`, is none."""
    behind = (*factors[1:], None)
    numbers = [factor.value for factor in factors if isinstance(factor, Num)]
    if len(numbers) < 2:
        return 0
    tops = [factor for factor, next_one in zip(factors, behind, strict=True) if _is_below_bar(next_one)]
    return sum(abs(value) == 1 for value in numbers) - sum(top in (Num(Fraction(1)), MINUS_ONE) for top in tops)


def _is_below_bar(expression: Expression | None) -> bool:
    return isinstance(expression, Power) and expression.exponent == MINUS_ONE


def _is_surd(value: Fraction) -> bool:
    """Whether the square root of a number is irrational: that of a square number is work to be done."""
    if value.denominator != 1 or not 1 < value <= _MAX_ROOT:
        return False
    return without_squares(int(value))[1] != 1


def _root_value(coefficient: Fraction, above: list[int], below: list[int]) -> tuple[Fraction, int | None]:
    """The coefficient and the one root, free of squares, of a product; None for the root where more were written."""
    if max(len(above), len(below)) > 1:
        return coefficient, None
    over, under = above[0] if above else 1, below[0] if below else 1
    outside, inside = without_squares(over * under)
    if inside == 1 and over * under != 1:
        return coefficient, None
    return coefficient * outside / under, inside
