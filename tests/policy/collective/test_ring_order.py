"""The ring on an uneven network against all permutations."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from testbed.policy.collective.ring_order import EXACT, best_ring, ring_cost
from tests.for_each import for_each


def uneven(size: int, seed: int) -> list[list[float]]:
    numbers = random.Random(seed)

    def time_s(a: int, b: int) -> float:
        return 0.0 if a == b else numbers.choice([1.0, 2.0, 5.0, 9.0]) + numbers.random()

    return [[time_s(a, b) for b in range(size)] for a in range(size)]


@for_each("size", range(1, 8))
@for_each("seed", range(5))
def test_exact_for_small_networks(size: int, seed: int) -> None:
    times = uneven(size, seed)
    order = best_ring(times)
    best = min(ring_cost(times, (0, *rest)) for rest in permutations(range(1, size)))
    assert sorted(order) == list(range(size))
    assert order[0] == 0
    assert ring_cost(times, order) == pytest.approx(best)


def test_data_centres_stay_together() -> None:
    times = [[0.0 if a == b else 0.001 if a % 3 == b % 3 else 1.0 for b in range(9)] for a in range(9)]
    order = best_ring(times)
    assert ring_cost(times, order) == (1.0, pytest.approx(3 + 6 * 0.001))


@for_each("size", [EXACT + 1, 20, 80])
def test_the_heuristic_finds_a_ring_of_fast_links(size: int) -> None:
    """A hidden ring of fast links among slow ones."""
    hidden = list(range(size))
    random.Random(3).shuffle(hidden)
    times = [[0.0 if a == b else 10.0 for b in range(size)] for a in range(size)]
    for a, b in zip(hidden, hidden[1:] + hidden[:1], strict=True):
        times[a][b] = 1.0
    assert ring_cost(times, best_ring(times)) == (1.0, float(size))


def test_the_heuristic_is_not_worse_than_chance() -> None:
    times = uneven(16, 7)
    numbers = random.Random(1)
    chance = min(ring_cost(times, numbers.sample(range(16), 16)) for _ in range(2000))
    assert ring_cost(times, best_ring(times)) <= chance


def test_a_ring_is_left_that_no_reversed_or_moved_stretch_shortens() -> None:
    times, size = uneven(EXACT + 3, 5), EXACT + 3
    order = list(best_ring(times))
    for first in range(1, size - 1):
        for last in range(first + 1, size):
            before, stretch, after = order[:first], order[first : last + 1], order[last + 1 :]
            for changed in (stretch[::-1], stretch[1:] + stretch[:1], stretch[-1:] + stretch[:-1]):
                assert ring_cost(times, order) <= ring_cost(times, before + changed + after)
