"""Gather and scatter over a binomial tree, as in MPI (Thakur, Rabenseifner and Gropp, 2005), and an all-reduce of both.

Chunk r is rank r's own. In a gather, a rank receives the chunks of its subtree, the nearest child's first, and passes
them on together: ⌈log2 p⌉ steps, with (p − 1)/p · n into the first rank. A scatter is a gather backwards: the first
rank sends each subtree its chunks, those of the largest subtree first.

``gather_scatter`` reduces to one rank and broadcasts from there, as MPI does for large messages: Reduce is a
reduce-scatter and a Gather to the root (Rabenseifner, 2004), Broadcast is a Scatter and an all-gather (van de Geijn,
1994). All bytes of the sum pass the root's link twice, which the symmetric algorithms avoid. Order of a sum: around the
ring.
"""

from __future__ import annotations

from testbed.policy.collective.ring import ring_all_gather, ring_reduce_scatter
from testbed.policy.collective.schedule import GroupShape, Schedule, Steps, even_cuts, receiving, segmented, sending
from testbed.policy.collective.tree import binomial


def subtree(rank: int, size: int) -> tuple[int, int]:
    """Return the range of ranks at or below ``rank`` in a binomial tree: the first, and the end (exclusive)."""
    reach = rank & -rank or size
    return rank, min(rank + reach, size)


def gather_to_first(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks; rank r begins with chunk r, rank 0 ends with all chunks."""
    place = binomial(rank, size)
    steps = [receiving(child, *subtree(child, size), reduce=False) for child in place.children]
    if place.parent is not None:
        steps.append(sending(place.parent, *subtree(rank, size), reduce=False))
    return tuple(steps)


def gather(rank: int, size: int) -> Schedule:
    """Send every rank's chunk to the first rank."""
    return Schedule(even_cuts(size), (gather_to_first(rank, size),))


def scatter_from_first(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks; rank 0 begins with all chunks, rank r ends with chunk r."""
    place = binomial(rank, size)
    steps = [sending(child, *subtree(child, size), reduce=False) for child in reversed(place.children)]
    if place.parent is not None:
        steps.insert(0, receiving(place.parent, *subtree(rank, size), reduce=False))
    return tuple(steps)


def scatter(rank: int, size: int) -> Schedule:
    """Send one of the first rank's chunks to each rank."""
    return Schedule(even_cuts(size), (scatter_from_first(rank, size),))


def gather_scatter(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce in 2 (p − 1) steps of n / p around the ring, and 2 ⌈log2 p⌉ to and from the first rank."""
    size = shape.size
    summed = ring_reduce_scatter(rank, size) + gather_to_first(rank, size)
    spread = scatter_from_first(rank, size) + ring_all_gather(rank, size)
    return segmented(Schedule(even_cuts(size), (summed + spread,)), shape.segments)
