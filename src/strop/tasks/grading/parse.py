r"""Reads a formula in LaTeX or plain text.

    sum      = ["-"] product {("+" | "-") ["+" | "-"] product}
    product  = power {("*" | "/" | nothing) power}
    power    = primary {"!" | "!!" | "'" | "%" | "^" exponent}
    primary  = number | name | "(" sum ")" | "{" sum "}" | "|" sum "|" | \command arguments

`2x` is a product, `2\frac12` a mixed number, `x^10` a power of ten (not LaTeX's `x^{1}0`), `1/2x` is half of x,
`5!!` is 15 and not `(5!)!`, `\sin^{-1}` the arcsine. A run of four letters or more is a word. The work is bounded: at
most MAX_TOKENS tokens, nested at most MAX_DEPTH deep.
"""

import re
from fractions import Fraction
from typing import NoReturn

from strop.tasks.grading.expression import (
    MINUS_ONE,
    Call,
    Expression,
    Num,
    Power,
    Product,
    Sum,
    Sym,
    UnreadableError,
    negated,
    quotient,
    root,
)

MAX_TOKENS = 300
MAX_DEPTH = 24

_TOKEN = re.compile(
    r"\s*(\\text\{[^{}]*\}|\\[A-Za-z]+|\\[{}|%]|\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
    r"|[A-Za-z]+|[-+*/^_!'|(){}\[\]%])"
)


_DERIVATIVE = re.compile(
    r"\\frac\s*\{\s*d ?([A-Za-z]?)\s*\}\s*\{\s*d ?([A-Za-z])\s*\}"
    r"|(?<![A-Za-z\\])d([A-Za-z])\s*/\s*d([A-Za-z])(?![A-Za-z])"
)
"""One symbol, and no quotient from which the d could be cancelled."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTIONS = _names(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det gcd lcm max min sgn arg"
)
GREEK = _names(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega infty ell emptyset"
)
_NAMED = _names(r"\overline \overrightarrow \vec \hat \bar \mathbb \mathcal \tilde \widehat")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_WORD_LETTERS = 4
_MAX_SIGNS_BEHIND = 6


def parse_expression(text: str) -> Expression:
    """The formula that a text in one spelling (`latex.unified`) holds; raises UnreadableError where it holds none."""
    return _Parser(_tokens(_DERIVATIVE.sub(r"\\text{d\1\3/d\2\4}", text))).whole()


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place, stop = 0, len(text.rstrip())
    while place < stop:
        match = _TOKEN.match(text, place)
        if match is None or len(tokens) > MAX_TOKENS:
            raise UnreadableError(f"no formula: {text[place : place + 20]!r}")
        tokens += _letters(match[1]) if match[1][0].isalpha() else [match[1]]
        place = match.end()
    return tokens


def _letters(run: str) -> list[str]:
    r"""Splits a run of letters into variables; names of functions and Greek letters, and words, stay whole."""
    if run in FUNCTIONS or run in GREEK or run == "sqrt":
        return ["\\" + run]
    is_word = len(run) >= _WORD_LETTERS or (len(run) > 1 and run.isupper())
    return [f"\\text{{{run}}}"] if is_word else list(run)


class _Parser:
    """One walk over the tokens; every method takes what it reads."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._place = 0
        self._depth = 0
        self._num_bars = 0

    def whole(self) -> Expression:
        expression = self._sum()
        if self._next:
            self._fail()
        return expression

    @property
    def _next(self) -> str:
        return self._tokens[self._place]

    def _take(self) -> str:
        token = self._tokens[self._place]
        if not token:
            self._fail()
        self._place += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            self._fail()

    def _fail(self) -> NoReturn:
        raise UnreadableError(f"no formula at {' '.join(self._tokens[self._place : self._place + 5])!r}")

    def _sum(self) -> Expression:
        terms = [self._term(self._take() if self._next in ("+", "-") else "+")]
        while self._next in ("+", "-"):
            sign = self._take()
            if self._next in ("+", "-"):
                sign = "+" if self._take() == sign else "-"
            terms.append(self._term(sign))
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def _term(self, sign: str) -> Expression:
        product = self._product()
        return negated(product) if sign == "-" else product

    def _product(self) -> Expression:
        factors = [self._power()]
        while True:
            if self._next == "*":
                self._take()
                factors.append(self._signed_power())
            elif self._next == "/":
                self._take()
                factors.append(Power(self._signed_power(), MINUS_ONE))
            elif self._starts_factor():
                factors.append(self._beside(factors))
            else:
                return factors[0] if len(factors) == 1 else Product(tuple(factors))

    def _beside(self, factors: list[Expression]) -> Expression:
        """A factor without a sign before it; beside a whole number, a fraction of numbers makes it a mixed one.

        A number stands so only behind a factorial, as in `3!7!`, and a power, as in `2^n 3^n`, but not `x^1 0`.
        """
        left = factors[-1]
        if (self._next[0].isdigit() or self._next[0] == ".") and not _ends_with_sign(left):
            self._fail()
        is_fraction = self._next == r"\frac"
        factor = self._power()
        if is_fraction and isinstance(left, Num) and left.value.denominator == 1:
            part = _plain_fraction(factor)
            if part is not None and 0 < part < 1:
                factors.pop()
                return Num(left.value + part)
        return factor

    def _starts_factor(self) -> bool:
        token = self._next
        if not token or token in (")", "]", "}", "\\}", "+", "-", "*", "/", "^", "_", "!", "'", "%", "\\%"):
            return False
        if token == "|":
            return self._num_bars == 0
        return token not in _CLOSED_BY.values()

    def _signed_power(self) -> Expression:
        if self._next == "-":
            self._take()
            return negated(self._power())
        return self._power()

    def _power(self) -> Expression:
        base = self._primary()
        for _ in range(_MAX_SIGNS_BEHIND):
            match self._next:
                case "!":
                    base = Call(self._factorial(), (base,))
                case "%" | "\\%":
                    self._take()
                    base = quotient(base, Num(Fraction(100)))
                case "^":
                    self._take()
                    base = self._raised(base)
                case _:
                    return base
        self._fail()

    def _factorial(self) -> str:
        """The name of what one sign or two mean; three or more are not read."""
        num_signs = 0
        while self._next == "!":
            self._take()
            num_signs += 1
        if num_signs > 2:
            self._fail()
        return "factorial" if num_signs == 1 else "double factorial"

    def _raised(self, base: Expression) -> Expression:
        if self._next == "\\circ":
            self._take()
            return Product((base, Sym("\\circ")))
        if self._next == "-":
            self._take()
            return Power(base, negated(self._exponent()))
        return Power(base, self._exponent())

    def _exponent(self) -> Expression:
        """Towers are read from the top: `2^3^4` is `2^(3^4)`."""
        exponent = self._primary()
        if self._next != "^":
            return exponent
        self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail()
        tower = self._raised(exponent)
        self._depth -= 1
        return tower

    def _primary(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail()
        primary = self._read_primary()
        self._depth -= 1
        return primary

    def _read_primary(self) -> Expression:
        token = self._take()
        if token[0].isdigit() or token[0] == ".":
            return self._number(token)
        if token.startswith("\\text{"):
            return self._name(token[6:-1].strip(" ()"))
        if token[0].isalpha():
            return self._name(token)
        if token in _CLOSED_BY and token != "\\{":
            return self._group(token)
        if token == "|":
            return self._absolute()
        if token[0] == "\\":
            return self._command(token[1:])
        self._fail()

    def _number(self, digits: str) -> Expression:
        value = Num(Fraction(digits.replace(",", "")))
        if self._next != "_":
            return value
        self._take()
        return Sym(f"{digits}_{self._raw_group()}")

    def _name(self, name: str) -> Expression:
        if self._next == "_":
            self._take()
            name = f"{name}_{self._raw_group()}"
        while self._next == "'":
            name += self._take()
        return Sym(name)

    def _raw_group(self) -> str:
        """The tokens of a group, or one token, as text."""
        if self._next != "{":
            return self._take()
        self._take()
        depth, parts = 1, []
        while depth:
            token = self._take()
            depth += (token == "{") - (token == "}")
            parts.append(token)
        return "".join(parts[:-1])

    def _group(self, opening: str) -> Expression:
        bars, self._num_bars = self._num_bars, 0
        inside = self._sum()
        self._num_bars = bars
        self._expect(_CLOSED_BY[opening])
        return Call(opening, (inside,)) if opening.startswith("\\") else inside

    def _absolute(self) -> Expression:
        self._num_bars += 1
        inside = self._sum()
        self._expect("|")
        self._num_bars -= 1
        return Call("abs", (inside,))

    def _command(self, name: str) -> Expression:
        if name == "frac":
            top, bottom = self._argument(), self._argument()
            return quotient(top, bottom)
        if name == "sqrt":
            return self._root()
        if name in ("binom", "dbinom", "tbinom"):
            return Call("binom", (self._argument(), self._argument()))
        if name in FUNCTIONS:
            return self._function(name)
        if name in GREEK:
            return self._name("\\" + name)
        if "\\" + name in _NAMED:
            return self._name(f"\\{name}({self._raw_group()})")
        if name == "circ":
            return Sym("\\circ")
        self._fail()

    def _argument(self) -> Expression:
        r"""An argument as LaTeX takes it: a group, or one token; of `\frac12` one digit each."""
        token = self._next
        if token[:1].isdigit() and len(token) > 1 and token.isdigit():
            self._tokens[self._place] = token[1:]
            return Num(Fraction(token[0]))
        return self._primary()

    def _root(self) -> Expression:
        degree = 2
        if self._next == "[":
            self._take()
            digits = self._take()
            if not digits.isdigit() or len(digits) > 2:
                self._fail()
            degree = int(digits)
            self._expect("]")
        return root(self._primary(), degree)

    def _function(self, name: str) -> Expression:
        exponent = base = None
        while self._next in ("^", "_"):
            if self._take() == "^":
                exponent = negated(self._primary()) if self._next == "-" and self._take() else self._primary()
            else:
                base = self._primary()
        argument = self._group(self._take()) if self._next in ("(", "{", "[") else self._bare_argument()
        arguments = (argument,) if base is None else (argument, base)
        if exponent == MINUS_ONE:
            return Call(f"arc{name}", arguments)
        call = Power(Sym("e"), argument) if name == "exp" and base is None else Call(name, arguments)
        return call if exponent is None else Power(call, exponent)

    def _bare_argument(self) -> Expression:
        r"""What a function without brackets takes: `\sin 2x` is the sine of 2x, `\sin x \cos x` a product of two."""
        factors = [self._signed_power()]
        while self._starts_factor() and self._next[1:] not in FUNCTIONS and self._next not in ("(", "[", "|"):
            factors.append(self._beside(factors))
        return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _ends_with_sign(factor: Expression) -> bool:
    """Whether a number beside a factor cannot be taken for its continuation."""
    match factor:
        case Call("factorial" | "double factorial"):
            return True
        case Power(_, exponent):
            return not isinstance(exponent, Num)
    return False


def _plain_fraction(expression: Expression) -> Fraction | None:
    match expression:
        case Product((Num(top), Power(Num(bottom), Num(exponent)))) if exponent == -1 and bottom:
            return top / bottom
    return None
