"""Pairwise testing: few full combinations of techniques in which every pair that works occurs."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import combinations

from testbed.scenario.matrix import AXES, Cell, Combination, cells

Pair = tuple[tuple[str, str], tuple[str, str]]


@cache
def all_cells() -> tuple[Cell, ...]:
    """Return the whole matrix, which takes half a second."""
    return tuple(cells())


def pairs_of(combination: Combination) -> set[Pair]:
    """Return the cells that a combination is an example of."""
    return {((one, combination[one]), (other, combination[other])) for one, other in combinations(combination, 2)}


@cache
def refused_pairs() -> frozenset[frozenset[tuple[str, str]]]:
    """Return the cells that are refused, in no order of their axes."""
    return frozenset(frozenset(cell.combination.items()) for cell in all_cells() if cell.refused)


def fits(combination: Combination) -> bool:
    """Return whether no pair is refused; then the whole is not, as ``test_matrix`` shows."""
    return not any(frozenset(pair) in refused_pairs() for pair in pairs_of(combination))


@cache
def covering(seed: int) -> tuple[Combination, ...]:
    """Return full combinations in which every cell that works occurs: pairwise testing, chosen greedily."""
    rng = random.Random(seed)
    left = {pair for cell in all_cells() if cell.refused is None for pair in pairs_of(cell.combination)}
    rows: list[Combination] = []

    def uncovered(row: Combination) -> int:
        return len(pairs_of(row) & left)

    while left:
        rows.append(filled(dict(rng.choice(sorted(left))), rng, uncovered))
        left -= pairs_of(rows[-1])
    return tuple(rows)


def filled(combination: Combination, rng: random.Random, wanted: Callable[[Combination], int] = len) -> Combination:
    """Return ``combination`` with a value on every axis: one that is not refused, and of those the most ``wanted``."""
    full = dict(combination)
    for axis in rng.sample(list(AXES), len(AXES)):
        if axis not in full:
            kinds = rng.sample(AXES[axis], len(AXES[axis]))
            options = [full | {axis: kind} for kind in kinds if fits(full | {axis: kind})]
            full = max(options, key=wanted)
    return {axis: full[axis] for axis in AXES}
