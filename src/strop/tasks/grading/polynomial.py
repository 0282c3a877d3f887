"""Polynomials with exact coefficients, whose generators may be variables, roots of numbers and the imaginary unit.

A monomial is a sorted tuple of (generator, exponent > 0). Exponents may be fractions: the generator `#2` to the power
1/2 is the square root of two. Its whole powers go into the coefficient, those of `i` into a sign, and those of a
radicand, such as the `x+1` in the root of x+1, are multiplied out: so two equal sums of roots of numbers have one form.
All work is bounded; what would be more raises UnreadableError.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from strop.tasks.grading.expression import UnreadableError
from strop.tasks.grading.factors import factorised

_MAX_PAIRS = 4096
_MAX_BITS = 4096
_MAX_EXPONENT = 64
"""Of a sum."""


@dataclass(frozen=True, slots=True, order=True)
class Generator:
    """What a monomial is made of; two with one label are the same."""

    label: str
    prime: int = field(default=0, compare=False)
    """The number that `#n` stands for; 0 for every other generator."""
    radicand: "Polynomial | None" = field(default=None, compare=False)
    """What the generator stands for, where it is a sum under a root."""
    is_opaque: bool = field(default=False, compare=False)
    """Whether other generators may be equal to it in a way that is not seen here, as sines and logarithms are."""


Monomial = tuple[tuple[Generator, Fraction], ...]

IMAGINARY = Generator("i")


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials with their coefficients, none of them 0."""

    terms: dict[Monomial, Fraction]

    @property
    def constant(self) -> Fraction | None:
        """The value of a polynomial without generators; None with some."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def generators(self) -> frozenset[Generator]:
        """All generators."""
        return frozenset(generator for monomial in self.terms for generator, _ in monomial)

    @property
    def label(self) -> str:
        """A text that is the same for equal polynomials."""
        parts = sorted(
            f"{value}*{'*'.join(f'{generator.label}^{exponent}' for generator, exponent in monomial)}"
            for monomial, value in self.terms.items()
        )
        return f"({'+'.join(parts)})"

    def plus(self, other: "Polynomial") -> "Polynomial":
        """The sum."""
        return _collected([*self.terms.items(), *other.terms.items()])

    def scaled(self, factor: Fraction) -> "Polynomial":
        """The product with a number."""
        return Polynomial({monomial: value * factor for monomial, value in self.terms.items()} if factor else {})

    def times(self, other: "Polynomial") -> "Polynomial":
        """The product."""
        if len(self.terms) * len(other.terms) > _MAX_PAIRS:
            raise UnreadableError("too many terms to multiply")
        result = Polynomial({})
        plain: list[tuple[Monomial, Fraction]] = []
        for mine, my_value in self.terms.items():
            for yours, your_value in other.terms.items():
                monomial, value, radicands = _multiplied(mine, yours, my_value * your_value)
                if not radicands:
                    plain.append((monomial, value))
                    continue
                product = Polynomial({monomial: value})
                for radicand, exponent in radicands:
                    product = product.times(radicand.power(exponent))
                result = result.plus(product)
        return result.plus(_collected(plain))

    def power(self, exponent: int) -> "Polynomial":
        """The power with an exponent >= 0."""
        size = max((_bits(value) for value in self.terms.values()), default=0)
        if exponent * max(size, 1) > _MAX_BITS or (exponent > 1 and exponent * len(self.terms) > _MAX_PAIRS):
            raise UnreadableError("too large a power")
        if len(self.terms) == 1:
            [(monomial, value)] = self.terms.items()
            raised = tuple((generator, power * exponent) for generator, power in monomial) if exponent else ()
            return Polynomial({(): Fraction(1)}).times(Polynomial({raised: value**exponent}))
        if exponent > _MAX_EXPONENT:
            raise UnreadableError("too large a power of a sum")
        result = Polynomial({(): Fraction(1)})
        for _ in range(exponent):
            result = result.times(self)
        return result


def number(value: Fraction) -> Polynomial:
    """A number as a polynomial."""
    return Polynomial({(): value} if value else {})


def generated(generator: Generator, exponent: Fraction = Fraction(1)) -> Polynomial:
    """A generator as a polynomial."""
    return Polynomial({((generator, exponent),): Fraction(1)})


def number_power(value: Fraction, exponent: Fraction) -> Polynomial:
    """A positive number to a power that is a fraction, as a number times roots of primes."""
    if _bits(value) > 128:
        raise UnreadableError("too large a number under a root")
    exponents = factorised(value.numerator)
    for prime, power in factorised(value.denominator).items():
        exponents[prime] = exponents.get(prime, 0) - power
    monomial = tuple(
        sorted((Generator(f"#{prime}", prime=prime), power * exponent) for prime, power in exponents.items())
    )
    return Polynomial({(): Fraction(1)}).times(Polynomial({monomial: Fraction(1)}))


def proportion(one: Polynomial, other: Polynomial) -> Fraction | None:
    """The number c != 0 with one = c * other; None where there is none."""
    if not one.terms or one.terms.keys() != other.terms.keys():
        return None
    ratios = {value / other.terms[monomial] for monomial, value in one.terms.items()}
    return ratios.pop() if len(ratios) == 1 else None


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _collected(terms: Iterable[tuple[Monomial, Fraction]]) -> Polynomial:
    sums: dict[Monomial, Fraction] = {}
    for monomial, value in terms:
        sums[monomial] = sums.get(monomial, Fraction(0)) + value
    return Polynomial({monomial: value for monomial, value in sums.items() if value})


def _multiplied(
    one: Monomial, other: Monomial, value: Fraction
) -> tuple[Monomial, Fraction, list[tuple["Polynomial", int]]]:
    """The product of two monomials with its coefficient, and the radicands that have come out from under a root."""
    exponents = dict(one)
    for generator, exponent in other:
        exponents[generator] = exponents.get(generator, Fraction(0)) + exponent
    radicands: list[tuple[Polynomial, int]] = []
    for generator, exponent in exponents.items():
        whole = exponent.numerator // exponent.denominator
        if generator.prime:
            if abs(whole) * generator.prime.bit_length() > _MAX_BITS:
                raise UnreadableError("too large a power")
            value *= Fraction(generator.prime) ** whole
            exponents[generator] = exponent - whole
        elif generator == IMAGINARY and exponent.denominator == 1:
            value *= -1 if whole % 4 in (2, 3) else 1
            exponents[generator] = Fraction(whole % 2)
        elif generator.radicand is not None and whole:
            radicands.append((generator.radicand, whole))
            exponents[generator] = exponent - whole
    if _bits(value) > 4 * _MAX_BITS:
        raise UnreadableError("too large a number")
    return tuple(sorted((item for item in exponents.items() if item[1]), key=lambda item: item[0])), value, radicands
