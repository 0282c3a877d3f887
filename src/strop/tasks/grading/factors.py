"""Whole numbers taken apart, with bounded work."""

from functools import cache

_LAST_TRIAL = 10_000


@cache
def _primes() -> tuple[int, ...]:
    is_prime = bytearray([1]) * (_LAST_TRIAL + 1)
    for number in range(2, int(_LAST_TRIAL**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(is_prime[number * number :: number]))
    return tuple(number for number in range(2, _LAST_TRIAL + 1) if is_prime[number])


def factorised(number: int) -> dict[int, int]:
    """Exponents by factor of a number >= 1.

    Factors are primes, but for a last one whose prime factors all exceed 10,000.
    """
    exponents: dict[int, int] = {}
    for prime in _primes():
        if prime * prime > number:
            break
        while number % prime == 0:
            number //= prime
            exponents[prime] = exponents.get(prime, 0) + 1
    if number > 1:
        exponents[number] = exponents.get(number, 0) + 1
    return exponents


def without_squares(number: int) -> tuple[int, int]:
    """The (s, n) with s^2 n = number and n free of squares; complete for numbers below 10^8."""
    outside = inside = 1
    for factor, exponent in factorised(number).items():
        outside *= factor ** (exponent // 2)
        inside *= factor ** (exponent % 2)
    return outside, inside
