"""Operations around a ring (Patarasuk and Yuan, 2009), and from every rank to every other. Chunk r is rank r's own.

Order of a sum around the ring: chunk c begins at rank c + 1 and takes the ranks in ring order, rank c last.
``bidirectional_ring``: half of the buffer goes around the other way, so that both directions of links are used.

``direct`` all-reduce: every rank sums one chunk and sends the sum to all others, in two steps. All pairs of ranks send
at once. So it suits networks in which each pair has a link (or a TCP stream) of its own, as between data centres, where
one stream is often the limit and not the uplink. Hivemind averages in this way (Ryabinin et al., Moshpit SGD, NeurIPS
2021, call it butterfly all-reduce); MPI knows it as reduce-scatter and all-gather by pairs. Order of a sum: rank r
starts with its own chunk r, and adds those of ranks r − 1, r − 2, … around the ring.
"""

from __future__ import annotations

from testbed.policy.collective.schedule import (
    GroupShape,
    RankTransfer,
    Schedule,
    ScheduleStep,
    Steps,
    busy,
    even_cuts,
    exchange,
    placed,
    segmented,
    side_by_side,
)


def ring_reduce_scatter(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks; rank r ends with the sum of chunk r."""
    return _around(rank, size, first=rank - 1, reduce=True)


def ring_all_gather(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks; rank r begins with chunk r, and all ranks end with all chunks."""
    return _around(rank, size, first=rank, reduce=False)


def _around(rank: int, size: int, first: int, *, reduce: bool) -> Steps:
    right = (rank + 1) % size
    left = (rank - 1) % size
    steps = []
    for step in range(size - 1):
        mine = (first - step) % size
        theirs = (first - step - 1) % size
        steps.append(exchange(right, (mine, mine + 1), left, (theirs, theirs + 1), reduce=reduce))
    return tuple(steps)


def ring(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce in 2 (p − 1) steps of n / p each."""
    size = shape.size
    steps = ring_reduce_scatter(rank, size) + ring_all_gather(rank, size)
    return segmented(Schedule(even_cuts(size), (steps,)), shape.segments)


def bidirectional_ring(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce over two rings in opposite directions, half of the buffer each."""
    size = shape.size
    turned = [-position % size for position in range(size)]
    mine = -rank % size
    there = ring_reduce_scatter(rank, size) + ring_all_gather(rank, size)
    steps = ring_reduce_scatter(mine, size) + ring_all_gather(mine, size)
    back = placed(steps, turned, [(chunk, chunk + 1) for chunk in range(size)])
    cuts = even_cuts(size)
    return segmented(side_by_side([Schedule(cuts, (there,)), Schedule(cuts, (back,))]), shape.segments)


def all_gather(rank: int, size: int) -> Schedule:
    """Send every rank's chunk to every rank, around the ring."""
    return Schedule(even_cuts(size), (ring_all_gather(rank, size),))


def all_gather_direct(rank: int, size: int) -> Schedule:
    """Send every rank's chunk to every rank directly: it takes one latency, and no rank forwards for others."""
    turned = [(rank + i) % size for i in range(1, size)]
    sends = tuple(RankTransfer(peer, rank, rank + 1) for peer in turned)
    receives = tuple(RankTransfer(peer, peer, peer + 1) for peer in reversed(turned))
    return Schedule(even_cuts(size), (busy(ScheduleStep(sends, receives)),))


def reduce_scatter(rank: int, size: int) -> Schedule:
    """Rank r ends with the sum of chunk r, around the ring."""
    return Schedule(even_cuts(size), (ring_reduce_scatter(rank, size),))


def direct(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce in 2 steps of p − 1 messages of n / p each."""
    size = shape.size
    if size == 1:
        return Schedule(even_cuts(1), ((),))
    others = [(rank + distance) % size for distance in range(1, size)]
    sends = tuple(RankTransfer(peer, peer, peer + 1, True) for peer in others)
    receives = tuple(RankTransfer(peer, rank, rank + 1, True) for peer in reversed(others))
    (gather,) = all_gather_direct(rank, size).pipes
    return segmented(Schedule(even_cuts(size), ((ScheduleStep(sends, receives), *gather),)), shape.segments)
