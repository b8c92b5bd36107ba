"""Ring all-reduce: reduce-scatter and all-gather around a ring (Patarasuk and Yuan, 2009).

Order of a sum: chunk c begins at rank c + 1 and takes the ranks in ring order, rank c last.
"""

from __future__ import annotations

from testbed.policy.collective.schedule import (
    GroupShape,
    RankTransfer,
    Schedule,
    ScheduleStep,
    Steps,
    even_cuts,
    segmented,
)


def ring_reduce_scatter(rank: int, size: int) -> Steps:
    """``size`` chunks; rank r ends with the sum of chunk r."""
    return _around(rank, size, first=rank - 1, reduce=True)


def ring_all_gather(rank: int, size: int) -> Steps:
    """``size`` chunks; rank r begins with chunk r, all end with all."""
    return _around(rank, size, first=rank, reduce=False)


def _around(rank: int, size: int, first: int, *, reduce: bool) -> Steps:
    right, left = (rank + 1) % size, (rank - 1) % size
    steps = []
    for step in range(size - 1):
        mine, theirs = (first - step) % size, (first - step - 1) % size
        steps.append(
            ScheduleStep(
                (RankTransfer(right, mine, mine + 1, reduce),), (RankTransfer(left, theirs, theirs + 1, reduce),)
            ),
        )
    return tuple(steps)


def ring(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce in 2 (p − 1) steps of n / p each."""
    size = shape.size
    steps = ring_reduce_scatter(rank, size) + ring_all_gather(rank, size)
    return segmented(Schedule(even_cuts(size), (steps,)), shape.segments)
