"""In which order ranks form a ring on an uneven network.

A ring moves at the pace of its slowest link, so the order with the smallest largest link time is best, and among
those the one with the smallest sum (the latency once around). Exact (Held and Karp, 1962) up to ``EXACT`` ranks;
above, the nearest neighbour from every start, improved by reversing and moving stretches until nothing helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

EXACT = 11
SEARCHED = 64  # above this the improvement would take minutes; nearest neighbour alone

Matrix = Sequence[Sequence[float]]
Cost = tuple[float, float]


def ring_cost(times_s: Matrix, order: Sequence[int]) -> Cost:
    """(largest, sum) of the link times around the ring; ``times_s[a][b]``: from a to b."""
    links = [times_s[a][b] for a, b in zip(order, [*order[1:], order[0]], strict=True)]
    return max(links), sum(links)


def best_ring(times_s: Matrix) -> tuple[int, ...]:
    """The order of ranks, beginning with rank 0. Equal matrices give equal orders."""
    size = len(times_s)
    if size <= 3:
        orders = [tuple(range(size)), (0, *reversed(range(1, size)))]
        return min(orders, key=lambda order: ring_cost(times_s, order))
    if size <= EXACT:
        return _exact(times_s)
    starts = range(size) if size <= SEARCHED else range(1)
    order = min((_nearest(times_s, start) for start in starts), key=lambda order: ring_cost(times_s, order))
    if size <= SEARCHED:
        order = _improved(times_s, order)
    zero = order.index(0)
    return tuple(order[zero:] + order[:zero])


def _exact(times_s: Matrix) -> tuple[int, ...]:
    """First the smallest possible largest link; then the shortest ring without larger ones."""
    values = sorted({value for row in times_s for value in row})
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if _shortest(times_s, values[middle]) is None:
            low = middle + 1
        else:
            high = middle
    order = _shortest(times_s, values[low])
    assert order is not None
    return order


def _shortest(times_s: Matrix, limit_s: float) -> tuple[int, ...] | None:
    """The ring with the smallest sum among those whose links all take at most ``limit_s``."""
    size = len(times_s)
    full = 1 << (size - 1)
    best = [[inf] * (size - 1) for _ in range(full)]
    before = [[-1] * (size - 1) for _ in range(full)]
    for first in range(size - 1):
        if times_s[0][first + 1] <= limit_s:
            best[1 << first][first] = times_s[0][first + 1]
    for visited in range(full):
        for last in range(size - 1):
            if best[visited][last] < inf:
                _extend(times_s, limit_s, visited, last, best, before)
    ends = [(best[full - 1][last] + times_s[last + 1][0], last) for last in range(size - 1)
            if times_s[last + 1][0] <= limit_s and best[full - 1][last] < inf]  # fmt: skip
    return _walk_back(min(ends)[1], full - 1, before) if ends else None


def _extend(
    times_s: Matrix, limit_s: float, visited: int, last: int, best: list[list[float]], before: list[list[int]]
) -> None:
    row, so_far = times_s[last + 1], best[visited][last]
    for following in range(len(row) - 1):
        link = row[following + 1]
        after = visited | 1 << following
        if after != visited and link <= limit_s and so_far + link < best[after][following]:
            best[after][following] = so_far + link
            before[after][following] = last


def _walk_back(last: int, visited: int, before: list[list[int]]) -> tuple[int, ...]:
    order = []
    while last >= 0:
        order.append(last + 1)
        visited, last = visited & ~(1 << last), before[visited][last]
    return (0, *reversed(order))


def _nearest(times_s: Matrix, start: int) -> list[int]:
    order, left = [start], set(range(len(times_s))) - {start}
    while left:
        row = times_s[order[-1]]
        following = min(left, key=lambda rank: (row[rank], rank))
        order.append(following)
        left.remove(following)
    return order


def _improved(times_s: Matrix, order: list[int]) -> list[int]:
    """Take the best of all reversed and moved stretches, the first of equal ones, until none is better."""
    times, changes = np.asarray(times_s, float), _changes(len(order))
    best, cost = np.asarray(order), ring_cost(times_s, order)
    while True:
        candidates = best[changes]
        links = times[candidates, np.roll(candidates, -1, axis=1)]
        largest = links.max(axis=1)
        sums = np.cumsum(links, axis=1)[:, -1]  # from left to right, as in ``ring_cost``: numpy's ``sum`` adds pairs
        first = np.lexsort((sums, largest))[0]
        if (candidate_cost := (float(largest[first]), float(sums[first]))) >= cost:
            return [int(rank) for rank in best]
        best, cost = candidates[first], candidate_cost


def _changes(size: int) -> np.ndarray:
    """Return the places of each changed order in the unchanged one: a stretch reversed, or moved by one either way."""
    places, changes = list(range(size)), []
    for i in range(1, size - 1):
        for j in range(i + 1, size):
            before, stretch, after = places[:i], places[i : j + 1], places[j + 1 :]
            for changed in (stretch[::-1], stretch[1:] + stretch[:1], stretch[-1:] + stretch[:-1]):
                changes.append(before + changed + after)
    return np.array(changes)
