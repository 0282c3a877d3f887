"""A pairwise covering array: few rows in which every allowed pair of levels occurs somewhere."""

import itertools
from collections.abc import Callable, Mapping, Sequence

Row = dict[str, str]
"""A level for each factor."""
Pair = tuple[tuple[str, str], tuple[str, str]]
"""(factor, level) twice, in the order of the factors."""


def covering_array(
    factors: Mapping[str, Sequence[str]], is_allowed: Callable[[Row], bool]
) -> tuple[list[Row], set[Pair]]:
    """Returns the rows and the pairs that no allowed row holds.

    Greedy: each row begins with the first pair that is missing and takes, factor by factor, the level with the most
    missing pairs, of equals the one that was used least. A level that leaves no way to an allowed row is not taken.
    The result depends on the arguments alone.

    Args:
        factors: the levels of each factor; those with more levels are better placed first.
        is_allowed: says of a row, and of the beginnings of one, whether it may be.
    """
    missing = dict.fromkeys(all_pairs(factors))
    used = {(factor, level): 0 for factor, levels in factors.items() for level in levels}
    rows: list[Row] = []
    impossible: set[Pair] = set()
    while missing:
        pair = next(iter(missing))
        row = _completed(dict(pair), factors, missing, used, is_allowed)
        if row is None:
            impossible.add(pair)
            del missing[pair]
            continue
        rows.append(row)
        for held in pairs_of(row, factors):
            missing.pop(held, None)
        for item in row.items():
            used[item] += 1
    return rows, impossible


def all_pairs(factors: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Every pair of levels of two factors."""
    return [
        ((one, level), (two, other))
        for one, two in itertools.combinations(factors, 2)
        for level in factors[one]
        for other in factors[two]
    ]


def pairs_of(row: Row, factors: Mapping[str, Sequence[str]]) -> list[Pair]:
    """The pairs that a whole row holds."""
    return list(itertools.combinations(((factor, row[factor]) for factor in factors), 2))


def _completed(
    begun: Row,
    factors: Mapping[str, Sequence[str]],
    missing: Mapping[Pair, None],
    used: Mapping[tuple[str, str], int],
    is_allowed: Callable[[Row], bool],
) -> Row | None:
    """Fills in the factors that are open, the best level first, going back where a choice leads nowhere."""
    if not is_allowed(begun):
        return None
    factor = next((factor for factor in factors if factor not in begun), None)
    if factor is None:
        return {factor: begun[factor] for factor in factors}

    def merit(level: str) -> tuple[int, int]:
        grown = {**begun, factor: level}
        held = ((name, grown[name]) for name in factors if name in grown)
        return -sum(pair in missing for pair in itertools.combinations(held, 2)), used[factor, level]

    for level in sorted(factors[factor], key=merit):
        row = _completed({**begun, factor: level}, factors, missing, used, is_allowed)
        if row is not None:
            return row
    return None
