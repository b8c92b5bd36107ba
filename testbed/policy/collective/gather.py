"""Gather to the first rank over a binomial tree, as MPI's (Thakur, Rabenseifner and Gropp, 2005).

Chunk r is rank r's own. A rank takes the chunks of its subtree, the nearest child's first, and passes them on together:
⌈log2 p⌉ steps, and (p − 1)/p · n into the first rank.
"""

from __future__ import annotations

from testbed.policy.collective.schedule import Schedule, Steps, even_cuts, receiving, sending
from testbed.policy.collective.tree import binomial


def subtree(rank: int, size: int) -> tuple[int, int]:
    """The ranks of a binomial tree at or below ``rank``: the first one, and the end."""
    reach = rank & -rank or size
    return rank, min(rank + reach, size)


def gather_to_first(rank: int, size: int) -> Steps:
    """``size`` chunks; rank r begins with chunk r, rank 0 ends with all."""
    place = binomial(rank, size)
    steps = [receiving(child, *subtree(child, size), reduce=False) for child in place.children]
    if place.parent is not None:
        steps.append(sending(place.parent, *subtree(rank, size), reduce=False))
    return tuple(steps)


def gather(rank: int, size: int) -> Schedule:
    """Every rank's chunk to the first rank."""
    return Schedule(even_cuts(size), (gather_to_first(rank, size),))
