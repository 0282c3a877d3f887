"""The value of a formula, as a quotient of two polynomials: equal values are equal after expansion.

Exact, without sympy: sums, products, powers, roots, the imaginary unit, factorials and binomials are worked out;
sines, logarithms and other functions are carried along as they are. Work that is not bounded is refused.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from strop.tasks.grading.expression import Call, Expression, Num, Power, Product, Sum, Sym, UnreadableError
from strop.tasks.grading.factors import factorised
from strop.tasks.grading.polynomial import IMAGINARY, Generator, Polynomial, generated, number, number_power

_ONE = number(Fraction(1))
_MAX_FACTORIAL = 170
_MAX_CHOSEN = 6
_MAX_BASE = 10**12


@dataclass(frozen=True, slots=True)
class Value:
    """A quotient of two polynomials; the bottom is not 0."""

    top: Polynomial
    bottom: Polynomial

    @property
    def constant(self) -> Fraction | None:
        """The number that it is; None where it is none, or an irrational one."""
        top, bottom = self.top.constant, self.bottom.constant
        return None if top is None or not bottom else top / bottom

    @property
    def is_decided(self) -> bool:
        """Whether another value that differs here does differ: nothing in it is left unevaluated."""
        return not any(generator.is_opaque for generator in self.top.generators | self.bottom.generators)

    @property
    def label(self) -> str:
        """A text that is the same for equal values, though not always for equal quotients."""
        return f"{self.top.label}/{self.bottom.label}"

    def plus(self, other: "Value") -> "Value":
        """The sum."""
        if self.bottom == other.bottom:
            return Value(self.top.plus(other.top), self.bottom)
        return Value(self.top.times(other.bottom).plus(other.top.times(self.bottom)), self.bottom.times(other.bottom))

    def minus(self, other: "Value") -> "Value":
        """The difference."""
        return self.plus(Value(other.top.scaled(Fraction(-1)), other.bottom))

    def times(self, other: "Value") -> "Value":
        """The product."""
        return Value(self.top.times(other.top), self.bottom.times(other.bottom))

    def inverse(self) -> "Value":
        """One divided by it; raises UnreadableError where it is 0."""
        if not self.top.terms:
            raise UnreadableError("division by zero")
        constant = self.top.constant
        if constant is not None:
            return Value(self.bottom.scaled(1 / constant), _ONE)
        return Value(self.bottom, self.top)


def same_value(one: Value, other: Value) -> bool:
    """Whether two values are equal."""
    return not one.minus(other).top.terms


def evaluate(expression: Expression) -> Value:
    """The value of a formula; raises UnreadableError where it has none or costs too much."""
    match expression:
        case Num(value):
            return _whole(number(value))
        case Sym("\\infty"):
            raise UnreadableError("infinity is no number to calculate with")
        case Sym(name):
            return _whole(generated(IMAGINARY if name == "i" else Generator(name)))
        case Sum(terms):
            total = _whole(number(Fraction(0)))
            for term in terms:
                total = total.plus(evaluate(term))
            return total
        case Product(factors):
            product = _whole(_ONE)
            for factor in factors:
                product = product.times(evaluate(factor))
            return product
        case Power(base, exponent):
            return _power(evaluate(base), evaluate(exponent))
        case Call(name, arguments):
            return _call(name, [evaluate(argument) for argument in arguments])


def _whole(polynomial: Polynomial) -> Value:
    return Value(polynomial, _ONE)


def _opaque(label: str) -> Value:
    return _whole(generated(Generator(label, is_opaque=True)))


def _power(base: Value, exponent: Value) -> Value:
    constant = exponent.constant
    if constant is None:
        return _symbolic_power(base, exponent)
    if constant < 0:
        return _power(base.inverse(), _whole(number(-constant)))
    whole, part = divmod(constant, 1)
    if whole > 10**6 or part.denominator > 100:
        raise UnreadableError("too large an exponent")
    power = Value(base.top.power(int(whole)), base.bottom.power(int(whole)))
    return (
        power.times(Value(_root(base.top, part), _ONE).times(Value(_root(base.bottom, part), _ONE).inverse()))
        if part
        else power
    )


def _symbolic_power(base: Value, exponent: Value) -> Value:
    """A power whose exponent has a variable: `2^{n+1}` is `2 * 2^n`, `4^n` is `(2^n)^2`, `e^{-x}` is `1/e^x`."""
    shift = exponent.top.terms.get((), Fraction(0)) if exponent.bottom == _ONE else Fraction(0)
    if shift.denominator != 1:
        shift = Fraction(0)
    rest = exponent.minus(_whole(number(shift)))
    power = _power(base, _whole(number(shift)))
    bases = _bases(base)
    if bases is None:
        return _opaque(f"{base.label}^{rest.label}").times(power)
    for label, times in bases.items():
        for monomial, coefficient in rest.top.terms.items():
            exponent_label = Value(Polynomial({monomial: Fraction(1)}), rest.bottom).label
            generator = Generator(f"{label}^{exponent_label}", is_opaque=True)
            factor = _whole(generated(generator, abs(coefficient * times)))
            power = power.times(factor if coefficient * times > 0 else factor.inverse())
    return power


def _bases(base: Value) -> dict[str, Fraction] | None:
    """What a base is the product of, primes and letters, with exponents; None for sums, and what may be negative."""
    if base.bottom != _ONE or len(base.top.terms) != 1:
        return None
    [(monomial, value)] = base.top.terms.items()
    is_bounded = value > 0 and max(value.numerator, value.denominator) < _MAX_BASE
    if not is_bounded or base.top.constant == 1 or any(generator == IMAGINARY for generator, _ in monomial):
        return None
    bases = {generator.label: exponent for generator, exponent in monomial}
    for part, sign in ((value.numerator, 1), (value.denominator, -1)):
        for prime, times in factorised(part).items():
            bases[f"#{prime}"] = bases.get(f"#{prime}", Fraction(0)) + sign * times
    return {label: exponent for label, exponent in bases.items() if exponent}


def _root(polynomial: Polynomial, exponent: Fraction) -> Polynomial:
    """A polynomial to a power between 0 and 1: of numbers worked out, of others with a positive factor taken out."""
    if not polynomial.terms:
        return polynomial
    factor = _content(polynomial)
    rest = polynomial.scaled(1 / factor)
    outside = number_power(factor, exponent)
    if rest.constant == 1:
        return outside
    if rest.constant == -1:
        return outside.times(_root_of_minus_one(exponent))
    if len(rest.terms) == 1:
        [(monomial, value)] = rest.terms.items()
        if value == 1 and all(generator.prime for generator, _ in monomial):
            return outside.times(_ONE.times(Polynomial({tuple((g, e * exponent) for g, e in monomial): value})))
        if value == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            return outside.times(generated(monomial[0][0], exponent))
    return outside.times(generated(Generator(f"root{rest.label}", radicand=rest, is_opaque=True), exponent))


def _root_of_minus_one(exponent: Fraction) -> Polynomial:
    if exponent.denominator == 2:
        return generated(IMAGINARY)
    if exponent.denominator % 2:
        return number(Fraction(-1) ** exponent.numerator)
    raise UnreadableError("an even root of a negative number")


def _content(polynomial: Polynomial) -> Fraction:
    """The largest positive number that divides all coefficients."""
    values = list(polynomial.terms.values())
    return Fraction(math.gcd(*(v.numerator for v in values)), math.lcm(*(v.denominator for v in values)))


def _call(name: str, arguments: list[Value]) -> Value:
    constants = [argument.constant for argument in arguments]
    match name, constants:
        case "abs", [Fraction() as value]:
            return _whole(number(abs(value)))
        case "abs", [None]:
            return _opaque(f"abs({_without_sign(arguments[0]).label})")
        case "factorial", [Fraction() as value] if value.denominator == 1 and value >= 0:
            return _factorial(int(value))
        case "double factorial", [Fraction() as value] if value.denominator == 1 and 0 <= value <= _MAX_FACTORIAL:
            return _whole(number(Fraction(math.prod(range(int(value), 0, -2)))))
        case "binom", [Fraction() as top, Fraction() as bottom] if _is_small_binomial(top, bottom):
            return _whole(number(Fraction(math.comb(int(top), int(bottom)))))
        case "binom", [None, Fraction() as bottom] if bottom in range(_MAX_CHOSEN + 1):
            return _falling_product(arguments[0], int(bottom))
        case "\\lfloor", [Fraction() as value]:
            return _whole(number(Fraction(math.floor(value))))
        case "\\lceil", [Fraction() as value]:
            return _whole(number(Fraction(math.ceil(value))))
        case ("ln", [1]) | ("log", [1]) | ("lg", [1]):
            return _whole(number(Fraction(0)))
    return _opaque(f"{name}({','.join(argument.label for argument in arguments)})")


def _factorial(argument: int) -> Value:
    """The number, or for a large one a generator of its own: factorials of different numbers above 1 differ."""
    if argument <= _MAX_FACTORIAL:
        return _whole(number(Fraction(math.factorial(argument))))
    return _whole(generated(Generator(f"{argument}!")))


def _falling_product(top: Value, num_chosen: int) -> Value:
    """`n` over 2 as `n(n-1)/2`."""
    product = _whole(number(Fraction(1, math.factorial(num_chosen))))
    for place in range(num_chosen):
        product = product.times(top.minus(_whole(number(Fraction(place)))))
    return product


def _without_sign(value: Value) -> Value:
    """The value or its negative, the same for both."""
    negative = Value(value.top.scaled(Fraction(-1)), value.bottom)
    return min(value, negative, key=lambda one: one.label)


def _is_small_binomial(top: Fraction, bottom: Fraction) -> bool:
    return top.denominator == bottom.denominator == 1 and 0 <= bottom <= top <= _MAX_FACTORIAL
